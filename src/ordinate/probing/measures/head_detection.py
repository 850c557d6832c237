"""Head detection: heads that attend to a fixed offset, to themselves, to the first token, or less with distance."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from ordinate.ops.stats.permutation_tests import largest_mean_test
from ordinate.probing.measures.attention_by_offset import AttentionProfile
from ordinate.probing.measures.attention_decay import DecayFit, fit_decay
from ordinate.probing.measures.synthetic_patterns import SyntheticPattern

# a decay must explain this share of the profile's divergence from uniform attention
MIN_EXPLAINED = 0.5
LEVEL = 0.05
# with n texts no test of both signs has a p-value below 2^(1 - n)
MIN_TEXTS = 6

HeadValues = Float[ndarray, "layers h"]
Places = list[tuple[int, int]]


@dataclass(frozen=True)
class DetectedHeads:
    """Classification of each head; a head has one kind at most.

    Args:
        offset: the offset with the largest attention mass.
        mass: attention mass at that offset.
        offset_p: p-value of that mass, corrected over offsets, heads and layers.
        first_token_mass: attention mass on the first token.
        decay: exponential decay fitted to each head.
        decay_p: p-value of the mean distance, corrected over heads and layers.
        offset_heads: (layer, head) of heads that attend to a fixed offset.
        weak_offset_heads: heads with half as much attention mass at one offset, or more.
        own_token_heads: heads that attend to the query's own token.
        first_token_heads: heads that attend to the first token.
        decaying_heads: heads whose attention decays with distance.
    """

    offset: HeadValues
    mass: HeadValues
    offset_p: HeadValues
    first_token_mass: HeadValues
    decay: DecayFit
    decay_p: HeadValues
    offset_heads: Places
    weak_offset_heads: Places
    own_token_heads: Places
    first_token_heads: Places
    decaying_heads: Places

    @property
    def heads(self) -> Places:
        """All heads of which the closed form is known."""
        return [*self.offset_heads, *self.first_token_heads, *self.decaying_heads]

    @property
    def patterns(self) -> list[SyntheticPattern]:
        """The closed-form attention pattern of each of `heads`."""
        back = [SyntheticPattern(offset=int(self.offset[place])) for place in self.offset_heads]
        return [
            *back,
            *(SyntheticPattern() for _ in self.first_token_heads),
            *(SyntheticPattern(slope=float(self.decay.slope[place])) for place in self.decaying_heads),
        ]


def detect_heads(seen: AttentionProfile, min_mass: float, seed: int) -> DetectedHeads:
    """Classify heads by their attention profiles.

    Attention by content has the same expectation at every offset but 0, and the expectation of its mean distance is
    that of uniform attention to the keys that the layer sees. Both are tested by sign flips over texts, and the
    largest of all statistics is compared with the largest under flips, which corrects over offsets, heads and layers.

    Args:
        seen: attention by offset.
        min_mass: least attention mass on one offset, on the first token or on the query's own, for a head to count.
        seed: seed of the tests and intervals.
    """
    means = seen.mass.mean(0)
    texts, shape = len(seen.mass), means.shape[:2]
    offset_p = largest_mean_test(seen.excess.reshape(texts, -1), seed).reshape(seen.excess.shape[1:])
    nearer = (seen.uniform_distance - seen.distance).reshape(texts, -1)
    # beside its negative: mean distances are slightly skewed, and both sides together keep the level
    both = largest_mean_test(np.concatenate([nearer, -nearer], 1), seed)
    decay_p, decay = both[: nearer.shape[1]].reshape(shape), fit_decay(seen, seed)
    first_p = largest_mean_test(
        (seen.first_token_mass - seen.uniform_first_token_mass[:, None]).reshape(texts, -1), seed
    ).reshape(shape)
    at, most = means.argmax(-1), means.max(-1)
    p = np.take_along_axis(offset_p, at[..., None], -1)[..., 0]
    first = (seen.first_token_mass.mean(0) >= min_mass) & (first_p <= LEVEL)
    back = (most >= min_mass) & (p <= LEVEL) & ~first
    near = (decay_p <= LEVEL) & (decay.explained >= MIN_EXPLAINED) & ~first & ~back
    own = (seen.own_mass.mean(0) >= min_mass) & ~first & ~near
    weak = (most >= min_mass / 2) & (p <= LEVEL) & ~(first | back | near | own)
    kinds = (_places(chosen) for chosen in (back, weak, own, first, near))
    offsets = np.array(seen.offsets)[at].astype(float)
    return DetectedHeads(offsets, most, p, seen.first_token_mass.mean(0), decay, decay_p, *kinds)


def _places(chosen: Bool[ndarray, "layers h"]) -> Places:
    return [(int(layer), int(head)) for layer, head in np.argwhere(chosen)]
