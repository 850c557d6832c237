"""Head detection: heads that attend to a fixed offset, to the first token, or less with distance, with p-values."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from ordinate.ops.stats.multiple_testing import benjamini_hochberg
from ordinate.probing.measures.attention_by_offset import AttentionProfile, SyntheticPattern

# decay: least correlation of -log(attention) and distance, and least total decrease of log(attention): by half
MIN_CORRELATION, MIN_LOG_DECREASE = 0.9, math.log(2)

HeadValues = Float[ndarray, "layers h"]
OffsetMasses = Float[ndarray, "texts offsets"]


@dataclass(frozen=True)
class DetectedHeads:
    """Classification of each head.

    Args:
        offset: the offset with the largest attention mass.
        mass: attention mass at that offset.
        adjusted_p: p-value adjusted for multiple comparisons.
        first_token_mass: attention mass on the first token.
        slope: decrease of log(attention) per token of distance.
        offset_heads: (layer, head) of heads that attend to a fixed offset.
        first_token_heads: (layer, head) of heads that attend to the first token.
        decaying_heads: (layer, head) of heads whose attention decays with distance.
    """

    offset: HeadValues
    mass: HeadValues
    adjusted_p: HeadValues
    first_token_mass: HeadValues
    slope: HeadValues
    offset_heads: list[tuple[int, int]]
    first_token_heads: list[tuple[int, int]]
    decaying_heads: list[tuple[int, int]]

    @property
    def heads(self) -> list[tuple[int, int]]:
        """All detected heads."""
        return [*self.offset_heads, *self.first_token_heads, *self.decaying_heads]

    @property
    def patterns(self) -> list[SyntheticPattern]:
        """The closed-form attention pattern of each detected head."""
        back = [SyntheticPattern(offset=int(self.offset[place])) for place in self.offset_heads]
        return [
            *back,
            *(SyntheticPattern() for _ in self.first_token_heads),
            *(SyntheticPattern(slope=float(self.slope[place])) for place in self.decaying_heads),
        ]


def detect_heads(seen: AttentionProfile, min_mass: float, seed: int) -> DetectedHeads:
    """Classify heads by their attention profiles.

    Args:
        seen: attention mass by offset.
        min_mass: least attention mass on one offset, or on the first token, for a head to count.
        seed: seed of the permutations.
    """
    means, sink = seen.mass.mean(0), seen.first_token_mass.mean(0)
    distance = np.abs(np.array(seen.offsets))
    each = [(layer, head) for layer, head in np.ndindex(*sink.shape)]
    q = benjamini_hochberg(
        np.array([max_offset_p_value(seen.mass[:, layer, head], seed) for layer, head in each])
    ).reshape(sink.shape)
    fallen = [decay_fit(seen.mass[:, layer, head], distance, seed) for layer, head in each]
    slope, straight, p = (np.array(one).reshape(sink.shape) for one in zip(*fallen, strict=True))
    most, first = means.max(-1), sink >= min_mass
    back = (most >= min_mass) & (q <= 0.05) & ~first
    steep = (straight >= MIN_CORRELATION) & (slope * (distance.max() - 1) >= MIN_LOG_DECREASE)
    near = steep & (benjamini_hochberg(p.ravel()).reshape(sink.shape) <= 0.05) & ~first & ~back
    offsets = np.array(seen.offsets)[means.argmax(-1)].astype(float)
    return DetectedHeads(offsets, most, q, sink, slope, _places(back), _places(first), _places(near))


def max_offset_p_value(mass: OffsetMasses, seed: int, permutations: int = 999) -> float:
    """Permutation p-value of the max-over-offsets statistic, permuting offset labels independently in each text.

    A head that attends by content has some offset with the largest mass, but not the same in all texts. Comparing
    maxima with maxima corrects for testing many offsets.

    Args:
        mass: attention mass of each text at each offset.
        seed: seed of the permutations.
        permutations: number of permutations.
    """
    drawn = _permuted_sums(mass, seed, permutations)
    reached = drawn.max(1) >= mass.sum(0).max() * (1 - 1e-12)
    return float((reached.sum() + 1) / (permutations + 1)) if len(mass) else math.nan


def decay_fit(
    mass: OffsetMasses, distance: Int[ndarray, "offsets"], seed: int, permutations: int = 999
) -> tuple[float, float, float]:
    """Linear fit of log(attention) against distance: slope, correlation, and the p-value of the correlation.

    The correlation is of -log(attention) and distance: negative where attention grows with distance. Offset 0 is
    left out. The null distribution permutes offset labels independently in each text.

    Args:
        mass: attention mass of each text at each offset.
        distance: absolute value of each offset.
        seed: seed of the permutations.
        permutations: number of permutations.

    Returns:
        The decrease of log(attention) per token of distance, the correlation, and its p-value.
    """
    other = distance > 0
    own, far = mass[:, other], distance[other] - distance[other].mean()
    rows = np.log(np.maximum(np.vstack([own.sum(0)[None], _permuted_sums(own, seed, permutations)]), 1e-300))
    level = rows - rows.mean(1, keepdims=True)
    sizes = np.linalg.norm(level, axis=1) * np.linalg.norm(far)
    straight = -(level @ far) / np.maximum(sizes, 1e-12)
    reached = straight[1:] >= straight[0] - 1e-12
    slope = -float(level[0] @ far) / float(far @ far)
    return slope, float(straight[0]), float((reached.sum() + 1) / (permutations + 1))


def _permuted_sums(mass: OffsetMasses, seed: int, permutations: int) -> Float[ndarray, "permutations offsets"]:
    """Sums over texts with offset labels permuted independently in each, one row per permutation."""
    random = np.random.default_rng(seed)
    drawn = np.zeros((permutations, mass.shape[1]))
    for row in mass:
        drawn += random.permuted(np.broadcast_to(row, drawn.shape), axis=1)
    return drawn


def _places(chosen: ndarray) -> list[tuple[int, int]]:
    return [(int(layer), int(head)) for layer, head in np.argwhere(chosen)]
