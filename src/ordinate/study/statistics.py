"""How sure a measured number is: bootstrap over documents and seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
LEVEL = 0.95

Numbers = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Draws:
    """Which documents and seeds each resample holds, as how often each was drawn.

    Two schemes read under the same draws are compared on the same documents and seeds: their difference is paired.

    Args:
        documents: resamples x documents.
        seeds: resamples x seeds.
    """

    documents: Numbers
    seeds: Numbers

    @classmethod
    def of(cls, documents: int, seeds: int, *, resamples: int = RESAMPLES, seed: int = 0) -> "Draws":
        """Draw with replacement, as many documents and seeds as there are."""
        random = np.random.default_rng(seed)
        return cls(
            random.multinomial(documents, np.full(documents, 1 / documents), resamples).astype(float),
            random.multinomial(seeds, np.full(seeds, 1 / seeds), resamples).astype(float),
        )


def bits_per_byte(nats: Numbers, size: Numbers) -> float:
    """Surprise of a text in bits for each of its bytes.

    Args:
        nats: seeds x documents, the surprise of each [nats].
        size: bytes of each document.
    """
    return float(nats.mean(0).sum() / size.sum() / math.log(2))


def resampled(nats: Numbers, size: Numbers, draws: Draws) -> Numbers:
    """Bits per byte of every resample."""
    total = ((draws.seeds @ nats / nats.shape[0]) * draws.documents).sum(1)
    return total / (draws.documents @ size) / math.log(2)


def interval(values: Numbers, documents: int) -> Interval | None:
    """The middle 95 % of resampled values; None where one document alone cannot tell."""
    if documents < 2:
        return None
    edge = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(values, [edge, 100 - edge])
    return float(low), float(high)


def bits_per_byte_interval(rows: Sequence[Mapping[str, Any]]) -> Interval | None:
    """The interval of one run's bits per byte, over its documents."""
    nats = np.array([[row["nats"] for row in rows]], float)
    size = np.array([row["bytes"] for row in rows], float)
    return interval(resampled(nats, size, Draws.of(len(rows), 1)), len(rows))


def overlap(one: Interval, other: Interval) -> bool:
    """Whether two intervals share a point."""
    return one[0] <= other[1] and other[0] <= one[1]
