"""Position swaps: the effect of exchanging the position ids of pairs of tokens."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.progress import OnProgress, fraction
from ordinate.probing._adapter import Inputs, ModelAdapter
from ordinate.probing.measures.perturbation_loss import InputChange, Metric
from ordinate.probing.measures.samples import Sample

# a swap displaces the same positions alike in all texts, and so does each of so many controls
CONTROLS = 3


@dataclass(frozen=True)
class SwapEffects:
    """Effect of position swaps.

    Args:
        offsets: distance of the swapped positions [tokens].
        swap_effects: increase of the metric of each text at each offset.
        control_effects: the same under each control; None if the model has no position embeddings.
        displacements: mean displacement of the embeddings at each offset.
    """

    offsets: list[int]
    swap_effects: Float[ndarray, "texts offsets"]
    control_effects: Float[ndarray, "controls texts offsets"] | None
    displacements: list[float]


def swap_positions(
    scale: Metric, table: Float[Tensor, "n width"] | None, seed: int, on_progress: OnProgress
) -> SwapEffects:
    """Swap the position ids of disjoint pairs at increasing distance.

    Args:
        scale: the metric.
        table: position embeddings, perhaps of the first positions only (only these are swapped); None: none.
        seed: seed of the random directions of the control.
        on_progress: receives the fraction done.

    Raises:
        NotApplicable: the model takes no position ids.
    """
    length, plain = scale.sample.length, scale.per_text()
    known = length if table is None else min(length, len(table))
    offsets = swap_offsets(known)
    generator, swapped, moved, lengths = torch.Generator().manual_seed(seed), [], [], []
    for place, offset in enumerate(offsets):
        order = _pairs(scale.sample, offset, known)
        swapped.append(scale.per_text(order, tokens=False, positions=True) - plain)
        if table is not None:
            far = table.new_zeros(length)
            far[:known] = (table[order[0, :known]] - table[:known]).norm(dim=1)
            lengths.append(float(far[far > 0].mean()))
            pushed = [_pushed(scale.subject, far, generator) for _ in range(CONTROLS)]
            moved.append(np.stack([scale.per_text(change=change) - plain for change in pushed]))
        on_progress(fraction((place + 1) / len(offsets)))
    return SwapEffects(offsets, np.stack(swapped, 1), np.stack(moved, 2) if moved else None, lengths)


def swap_offsets(known: int) -> list[int]:
    """Offsets at which positions are swapped, if the embeddings of so many positions are known."""
    return [4**power for power in range(6) if 4**power <= (known - 2) // 2]


def swap_passes(known: int, *, controls: bool) -> int:
    """Number of forward passes through the texts that swaps take.

    Args:
        known: number of positions whose embeddings are known.
        controls: whether the model has position embeddings, which the controls displace.
    """
    return 1 + len(swap_offsets(known)) * (1 + CONTROLS * controls)


def _pairs(chosen: Sample, offset: int, known: int) -> Tensor:
    """Permutation that swaps some disjoint pairs among the first `known` positions; the same in every text."""
    order = torch.arange(chosen.length)
    firsts, taken = [], set[int]()
    for first in range(chosen.fixed + 1, known - offset, max(1, known // 8)):
        if not {first, first + offset} & taken:
            firsts.append(first)
            taken |= {first, first + offset}
    one = torch.tensor(firsts)
    order[one], order[one + offset] = one + offset, one
    return order.expand(chosen.count, -1).contiguous()


def _pushed(subject: ModelAdapter, lengths: Float[Tensor, "n"], generator: torch.Generator) -> InputChange:
    """Control: displace the embeddings of the same tokens equally far, in random directions that all texts share."""
    vectors = subject.token_table()
    noise = torch.randn(len(lengths), vectors.shape[1], generator=generator, dtype=torch.float64)
    noise = noise / noise.norm(dim=-1, keepdim=True) * lengths[:, None]

    def change(rows: slice, inputs: Inputs) -> Inputs:
        own = vectors[inputs.ids]
        return replace(inputs, embeddings=own + noise.to(own))

    return change
