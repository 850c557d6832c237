"""Symmetry of W_q W_k^T of each head, computed from the weights, with p-values."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from ordinate.ops.stats.bootstrap import percentiles
from ordinate.ops.stats.multiple_testing import benjamini_hochberg
from ordinate.ops.symmetry import (
    effective_ranks,
    exchange_similarity,
    null_symmetry,
    positive_share,
    summed_symmetry,
    symmetry,
    symmetry_by_offset,
)
from ordinate.probing._adapter import ModelAdapter, NotApplicable, Projection
from ordinate.probing.measures.measured import Measured, attempt
from ordinate.probing.measures.relative_rotation import (
    Offset,
    RelativeRotations,
    axis_sizes,
    measured_offsets,
    relative_rotations,
)
from ordinate.probing.measures.samples import Sample

# share from which on a head is said to be symmetric, or its symmetric part to be positive
EXCHANGEABLE = 0.95
ENERGY = 0.95


@dataclass(frozen=True)
class QKSymmetry:
    """Symmetry of the query-key matrices M = W_q W_k^T.

    Args:
        symmetry: symmetry of each head, with the weight of the preceding norm folded in.
        symmetry_without_norm: symmetry without the norm weight.
        positive: share of the symmetric part of each head that is positive semidefinite.
        exchange: similarity of the scores of each head before and after the exchange of W_q and W_k, at the measured
            offset where it is least; None: the rotations are unknown.
        symmetry_of_sum: symmetry of the sum of M over the heads of each layer.
        rank: number of singular values of each M that hold `ENERGY` of its squared norm.
        symmetry_by_offset: symmetry at each offset; None without rotary embedding.
        offsets: the offsets, between tokens of a text or patches of an image.
        rotations: relative rotations of each layer; None: unknown.
        adjusted_p: adjusted p-value of each head.
        null_interval: central 95 % interval of the median head's symmetry under the null.
        projections: the projections.
    """

    symmetry: Float[ndarray, "layers h"]
    symmetry_without_norm: Float[ndarray, "layers h"]
    positive: Float[ndarray, "layers h"]
    exchange: Float[ndarray, "layers h"] | None
    symmetry_of_sum: list[float]
    rank: list[list[int]]
    symmetry_by_offset: Float[ndarray, "layers h offsets"] | None
    offsets: tuple[Offset, ...]
    rotations: dict[int, RelativeRotations] | None
    adjusted_p: Float[ndarray, "layers h"]
    null_interval: tuple[float, float]
    projections: list[Projection]

    @property
    def exchangeable(self) -> Bool[ndarray, "layers h"] | None:
        """Heads whose queries and keys could be exchanged; None: the rotations are unknown."""
        return None if self.exchange is None else self.exchange >= EXCHANGEABLE

    @property
    def mergeable(self) -> Bool[ndarray, "layers h"] | None:
        """Heads whose queries and keys could be one: exchangeable, with a positive semidefinite symmetric part."""
        return None if self.exchangeable is None else self.exchangeable & (self.positive >= EXCHANGEABLE)


def measure_qk_symmetry(subject: ModelAdapter, chosen: Sample, seed: int) -> Measured[QKSymmetry | None]:
    """Measure the symmetry of each head; None if the projections are unknown.

    Args:
        subject: the model.
        chosen: the sample; its first text is used to measure relative rotations.
        seed: seed of the null distribution.
    """
    try:
        layers = [subject.projection(layer) for layer in range(subject.info.layers)]
    except NotApplicable as reason:
        return Measured(None, {"symmetry of the weights": str(reason)})
    found = [(own.norm_weight[:, None] * own.query, own.norm_weight[:, None] * own.key) for own in layers]
    width = found[0][0].shape[-1]
    rotations = attempt("symmetry at offsets", lambda: relative_rotations(subject, chosen, width))
    by = rotations.value
    folded = torch.stack([symmetry(q, k) for q, k in found]).cpu().numpy()
    measured = QKSymmetry(
        folded,
        torch.stack([symmetry(own.query, own.key) for own in layers]).cpu().numpy(),
        torch.stack([positive_share(q, k) for q, k in found]).cpu().numpy(),
        _exchange(by, found),
        [summed_symmetry(q, k) for q, k in found],
        [effective_ranks(q, k, ENERGY) for q, k in found],
        _turned(by, found),
        measured_offsets(axis_sizes(chosen)),
        by,
        *_by_chance(folded, found, seed),
        layers,
    )
    return Measured(measured, rotations.missing)


def _turned(by: dict[int, Tensor] | None, found: list[tuple[Tensor, Tensor]]) -> ndarray | None:
    if by is None or len(by) < len(found):
        return None
    return torch.stack([symmetry_by_offset(q, k, by[layer]) for layer, (q, k) in enumerate(found)]).numpy()


def _exchange(by: dict[int, Tensor] | None, found: list[tuple[Tensor, Tensor]]) -> ndarray | None:
    if by is None:
        return None
    still = torch.eye(found[0][0].shape[-1], dtype=torch.float64)[None, None]
    least = [exchange_similarity(q, k, by.get(layer, still)).amin(1) for layer, (q, k) in enumerate(found)]
    return torch.stack(least).cpu().numpy()


def _by_chance(
    values: ndarray, found: list[tuple[Tensor, Tensor]], seed: int
) -> tuple[Float[ndarray, "layers h"], tuple[float, float]]:
    """Two-sided adjusted p-values of each head, and the central 95 % interval of the median, under the null."""
    drawn = torch.cat(
        [null_symmetry(query, key, seed + layer) for layer, (query, key) in enumerate(found)], 1
    ).numpy()
    middle, flat = 1 / found[0][0].shape[1], values.ravel()
    reached = (np.abs(drawn - middle) >= np.abs(flat - middle)).sum(0)
    # the heads of a layer share their draws, but are independent under the null
    low, high = percentiles(np.median(np.random.default_rng(seed).permuted(drawn, axis=0), 1))
    p = (reached + 1) / (len(drawn) + 1)
    return benjamini_hochberg(p).reshape(values.shape), (float(low), float(high))
