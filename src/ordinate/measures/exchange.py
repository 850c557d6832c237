"""What it costs a model when some of its positions are exchanged."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.measures.harm import Change, Gauge
from ordinate.measures.presenting import Sample
from ordinate.probe import Tell
from ordinate.subject import Inputs, Subject, Unfit


@dataclass(frozen=True)
class Exchange:
    """What exchanging positions costs.

    Args:
        offsets: how far apart the exchanged positions are [tokens].
        swapped: the rise of each text at each offset.
        moved: the same in the control; None where nothing is added to tokens.
        lengths: how far tokens are moved at each offset.
    """

    offsets: list[int]
    swapped: Float[ndarray, "texts offsets"]
    moved: Float[ndarray, "texts offsets"] | None
    lengths: list[float]


def exchanged(
    scale: Gauge, table: Float[Tensor, "n width"] | None, seed: int, reasons: dict[str, str], tell: Tell
) -> Exchange | None:
    """Exchange the positions of pairs, near ones and far ones; None where positions cannot be given.

    Args:
        scale: measures what it costs.
        table: what is added to tokens, perhaps of the first positions only, which are those exchanged; None: nothing.
        seed: decides the directions of the control.
        reasons: is told why something was not measured.
        tell: is told how much is done.
    """
    length, plain = scale.sample.length, scale.measure()
    known = length if table is None else min(length, len(table))
    offsets = [2**power for power in range(12) if 2**power <= (known - 2) // 2]
    generator, swapped, moved, lengths = torch.Generator().manual_seed(seed), [], [], []
    for place, offset in enumerate(offsets):
        order = _pairs(scale.sample, offset, known)
        try:
            swapped.append(scale.measure(order, tokens=False, positions=True) - plain)
        except Unfit as reason:
            reasons["harm of exchanged positions"] = str(reason)
            return None
        if table is not None:
            far = table.new_zeros(length)
            far[:known] = (table[order[0, :known]] - table[:known]).norm(dim=1)
            lengths.append(float(far[far > 0].mean()))
            moved.append(scale.measure(change=_pushed(scale.subject, far, generator)) - plain)
        tell((place + 1) / len(offsets))
    return Exchange(offsets, np.stack(swapped, 1), np.stack(moved, 1) if moved else None, lengths)


def _pairs(chosen: Sample, offset: int, known: int) -> Tensor:
    """Some disjoint pairs of the first `known` positions so far apart, exchanged; the same in every text."""
    order = torch.arange(chosen.length)
    firsts, taken = [], set[int]()
    for first in range(chosen.fixed + 1, known - offset, max(1, known // 8)):
        if not {first, first + offset} & taken:
            firsts.append(first)
            taken |= {first, first + offset}
    one = torch.tensor(firsts)
    order[one], order[one + offset] = one + offset, one
    return order.expand(chosen.texts, -1).contiguous()


def _pushed(subject: Subject, lengths: Float[Tensor, "n"], generator: torch.Generator) -> Change:
    """The control: the vectors of the same tokens moved as far, in random directions."""
    vectors = subject.token_table()

    def change(rows: slice, inputs: Inputs) -> Inputs:
        own = vectors[inputs.ids]
        noise = torch.randn(own.shape, generator=generator, dtype=torch.float64)
        noise = noise / noise.norm(dim=-1, keepdim=True) * lengths[:, None]
        return replace(inputs, vectors=own + noise.to(own))

    return change
