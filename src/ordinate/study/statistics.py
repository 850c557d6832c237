"""How sure a measured number is: bootstrap over documents and seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
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
    Of few seeds, resamples vary less than fresh ones would, by (n - 1) / n; how often each was drawn is stretched by
    the root of that.

    Args:
        documents: resamples x documents.
        seeds: resamples x seeds.
    """

    documents: Numbers
    seeds: Numbers

    # a study draws alike for each of its comparisons
    @classmethod
    @lru_cache(maxsize=4)
    def of(cls, documents: int, seeds: int, *, resamples: int = RESAMPLES, seed: int = 0) -> "Draws":
        """Draw with replacement, as many documents and seeds as there are."""
        random = np.random.default_rng(seed)
        drawn = random.multinomial(documents, np.full(documents, 1 / documents), resamples).astype(float)
        times = random.multinomial(seeds, np.full(seeds, 1 / seeds), resamples).astype(float)
        stretch = math.sqrt(seeds / (seeds - 1)) if seeds > 1 else 1.0
        return cls(drawn, 1 + (times - 1) * stretch)


def bits(nats: Numbers) -> Numbers:
    """Surprise in bits."""
    return nats / math.log(2)


def ratio(amounts: Numbers, sizes: Numbers) -> float:
    """All amounts over all sizes: bits over bytes, or right answers over questions.

    Args:
        amounts: seeds x documents.
        sizes: of each document.
    """
    return float(amounts.mean(0).sum() / sizes.sum())


def resampled(amounts: Numbers, sizes: Numbers, draws: Draws) -> Numbers:
    """The ratio of every resample."""
    total = ((draws.seeds @ amounts / amounts.shape[0]) * draws.documents).sum(1)
    return total / (draws.documents @ sizes)


def interval(values: Numbers, documents: int) -> Interval | None:
    """The middle 95 % of resampled values; None where one document alone cannot tell."""
    if documents < 2:
        return None
    edge = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(values, [edge, 100 - edge])
    return float(low), float(high)


def bits_per_byte_interval(rows: Sequence[Mapping[str, Any]]) -> Interval | None:
    """The interval of one run's bits per byte, over its documents."""
    amounts = bits(np.array([[row["nats"] for row in rows]], float))
    sizes = np.array([row["bytes"] for row in rows], float)
    return interval(resampled(amounts, sizes, Draws.of(len(rows), 1)), len(rows))


def share_interval(right: Numbers, asked: Numbers) -> Interval:
    """The interval of a share of right answers, over sequences, that does not close where all or none are right.

    Wilson's interval for as many independent questions as tell as much as these do, where those of one sequence go
    together: n = p (1 - p) / var(p). Where all or none are right, n is the number of sequences.

        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Args:
        right: right answers of each sequence, or their mean over seeds.
        asked: questions of each sequence.
    Source: Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953; the variance of a ratio from Cochran 1977,
        Sampling Techniques, section 6.4.
    """
    count, share = len(asked), float(right.sum() / asked.sum())
    spread = float(((right - share * asked) ** 2).sum() / asked.sum() ** 2 * count / max(1, count - 1))
    n = min(share * (1 - share) / spread, float(asked.sum())) if spread else float(count)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


def overlap(one: Interval, other: Interval) -> bool:
    """Whether two intervals share a point."""
    return one[0] <= other[1] and other[0] <= one[1]
