"""What the matrices of queries and keys tell by themselves: how symmetric each head is, and how likely by chance."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.measures.presenting import Sample
from ordinate.measures.turning import Offset, Turn, axes_of, offsets, turns
from ordinate.ops.bootstrap import percentiles
from ordinate.ops.discovery import adjusted
from ordinate.ops.symmetry import by_chance, ranks, summed_symmetry, symmetry, symmetry_by_offset
from ordinate.subject import Projection, Subject, Unfit

ENERGY = 0.95


@dataclass(frozen=True)
class Weighed:
    """What the weights tell.

    Args:
        folded: the symmetry of each head, the norm's gain folded in.
        bare: the same without.
        summed: of the sum over the heads of each layer.
        rank: how many singular values of each M hold most of it.
        turned: the symmetry at each offset; None where nothing is turned.
        offsets: these: between tokens of a text, or patches of an image.
        turns: by what each layer turns queries and keys; None: not known.
        q: the adjusted p-value of each head.
        chance: between what the median head's symmetry is by chance, 95 times in 100.
        layers: the matrices.
    """

    folded: Float[ndarray, "layers h"]
    bare: Float[ndarray, "layers h"]
    summed: list[float]
    rank: list[list[int]]
    turned: Float[ndarray, "layers h offsets"] | None
    offsets: tuple[Offset, ...]
    turns: dict[int, Turn] | None
    q: Float[ndarray, "layers h"]
    chance: tuple[float, float]
    layers: list[Projection]


def weighed(subject: Subject, chosen: Sample, seed: int, reasons: dict[str, str]) -> Weighed | None:
    """Take the symmetry of each head; None where the matrices are not known.

    Args:
        subject: the model.
        chosen: what it reads; a text of it shows by what queries and keys are turned.
        seed: of what chance gives.
        reasons: is told why something was not measured.
    """
    try:
        layers = [subject.projection(layer) for layer in range(subject.facts.layers)]
    except Unfit as reason:
        reasons["symmetry of the weights"] = str(reason)
        return None
    found = [(own.gain[:, None] * own.query, own.gain[:, None] * own.key) for own in layers]
    by = _turns(subject, chosen, found[0][0].shape[-1], reasons)
    folded = torch.stack([symmetry(q, k) for q, k in found]).cpu().numpy()
    return Weighed(
        folded,
        torch.stack([symmetry(own.query, own.key) for own in layers]).cpu().numpy(),
        [summed_symmetry(q, k) for q, k in found],
        [ranks(q, k, ENERGY) for q, k in found],
        _turned(by, found),
        offsets(axes_of(chosen)),
        by,
        *_by_chance(folded, found, seed),
        layers,
    )


def _turns(subject: Subject, chosen: Sample, width: int, reasons: dict[str, str]) -> dict[int, Turn] | None:
    try:
        return turns(subject, chosen, width)
    except Unfit as reason:
        reasons["symmetry at offsets"] = str(reason)
        return None


def _turned(by: dict[int, Tensor] | None, found: list[tuple[Tensor, Tensor]]) -> ndarray | None:
    if by is None or len(by) < len(found):
        return None
    return torch.stack([symmetry_by_offset(q, k, by[layer]) for layer, (q, k) in enumerate(found)]).numpy()


def _by_chance(
    values: ndarray, found: list[tuple[Tensor, Tensor]], seed: int
) -> tuple[Float[ndarray, "layers h"], tuple[float, float]]:
    """How often chance makes a head as far from what it makes on average, adjusted; and what it makes the median."""
    drawn = torch.cat([by_chance(query, key, seed + layer) for layer, (query, key) in enumerate(found)], 1).numpy()
    middle, flat = 1 / found[0][0].shape[1], values.ravel()
    reached = (np.abs(drawn - middle) >= np.abs(flat - middle)).sum(0)
    low, high = percentiles(np.median(drawn, 1))
    p = (reached + 1) / (len(drawn) + 1)
    return adjusted(p).reshape(values.shape), (float(low), float(high))
