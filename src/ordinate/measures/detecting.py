"""Heads that look at one place, or the less the farther, told from those that only seem to."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from ordinate.measures.gaze import Gaze, Target
from ordinate.ops.discovery import adjusted

# how straight the logarithm of the weight falls with distance, and how far: to less than half
STRAIGHT, FALLEN = 0.9, math.log(2)

Heads = Float[ndarray, "layers h"]
Masses = Float[ndarray, "texts offsets"]


@dataclass(frozen=True)
class Found:
    """What was found of each head.

    Args:
        offset: where it looks most.
        mass: how much of its weight is there.
        q: adjusted p-value.
        sink: how much of its weight is on the first token.
        slope: by how much the logarithm of its weight falls with each place of distance.
        back: which heads look at an offset.
        first: which look at the first token.
        near: which look the less the farther.
    """

    offset: Heads
    mass: Heads
    q: Heads
    sink: Heads
    slope: Heads
    back: list[tuple[int, int]]
    first: list[tuple[int, int]]
    near: list[tuple[int, int]]

    @property
    def heads(self) -> list[tuple[int, int]]:
        """All that look in some such way."""
        return [*self.back, *self.first, *self.near]

    @property
    def targets(self) -> list[Target]:
        """Where each of these looks, in closed form."""
        back = [Target(offset=int(self.offset[place])) for place in self.back]
        return [
            *back,
            *(Target() for _ in self.first),
            *(Target(slope=float(self.slope[place])) for place in self.near),
        ]


def detected(seen: Gaze, mass: float, seed: int) -> Found:
    """Which heads look where.

    Args:
        seen: where heads look.
        mass: how much of a head's weight must be on one place for it to count.
        seed: of what chance gives.
    """
    means, sink = seen.mass.mean(0), seen.sink.mean(0)
    distance = np.abs(np.array(seen.offsets))
    each = [(layer, head) for layer, head in np.ndindex(*sink.shape)]
    q = adjusted(np.array([peaks(seen.mass[:, layer, head], seed) for layer, head in each])).reshape(sink.shape)
    fallen = [falls(seen.mass[:, layer, head], distance, seed) for layer, head in each]
    slope, straight, p = (np.array(one).reshape(sink.shape) for one in zip(*fallen, strict=True))
    most, first = means.max(-1), sink >= mass
    back = (most >= mass) & (q <= 0.05) & ~first
    steep = (straight >= STRAIGHT) & (slope * (distance.max() - 1) >= FALLEN)
    near = steep & (adjusted(p.ravel()).reshape(sink.shape) <= 0.05) & ~first & ~back
    offsets = np.array(seen.offsets)[means.argmax(-1)].astype(float)
    return Found(offsets, most, q, sink, slope, _places(back), _places(first), _places(near))


def peaks(mass: Masses, seed: int, permutations: int = 999) -> float:
    """The p-value of the largest mean over texts, offsets being named anew in each text.

    A head that looks wherever the content is has some offset that comes out highest, but not the same in all texts.
    The largest is compared with the largest, so looking at many offsets is paid for.

    Args:
        mass: how much weight each text has at each offset.
        seed: of the permutations.
        permutations: how many.
    """
    drawn = _renamed(mass, seed, permutations)
    reached = drawn.max(1) >= mass.sum(0).max() * (1 - 1e-12)
    return float((reached.sum() + 1) / (permutations + 1)) if len(mass) else math.nan


def falls(
    mass: Masses, distance: Int[ndarray, "offsets"], seed: int, permutations: int = 999
) -> tuple[float, float, float]:
    """How the logarithm of the weight falls with distance: the slope, how straight it is, and the p-value of that.

    Straight is the correlation of both, less than 0 where weight grows with distance. The token itself is left out.
    For chance offsets are named anew in each text.

    Args:
        mass: how much weight each text has at each offset.
        distance: of each offset.
        seed: of the permutations.
        permutations: how many.
    """
    other = distance > 0
    own, far = mass[:, other], distance[other] - distance[other].mean()
    rows = np.log(np.maximum(np.vstack([own.sum(0)[None], _renamed(own, seed, permutations)]), 1e-300))
    level = rows - rows.mean(1, keepdims=True)
    sizes = np.linalg.norm(level, axis=1) * np.linalg.norm(far)
    straight = -(level @ far) / np.maximum(sizes, 1e-12)
    reached = straight[1:] >= straight[0] - 1e-12
    slope = -float(level[0] @ far) / float(far @ far)
    return slope, float(straight[0]), float((reached.sum() + 1) / (permutations + 1))


def _renamed(mass: Masses, seed: int, permutations: int) -> Float[ndarray, "permutations offsets"]:
    """The sum over texts, offsets being named anew in each, so many times."""
    random = np.random.default_rng(seed)
    drawn = np.zeros((permutations, mass.shape[1]))
    for row in mass:
        drawn += random.permuted(np.broadcast_to(row, drawn.shape), axis=1)
    return drawn


def _places(chosen: ndarray) -> list[tuple[int, int]]:
    return [(int(layer), int(head)) for layer, head in np.argwhere(chosen)]
