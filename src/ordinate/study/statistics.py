"""Confidence intervals: bootstrap over documents and seeds, and Wilson intervals of accuracies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
CONFIDENCE = 0.95

Floats = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class BootstrapWeights:
    """Bootstrap weights: how often each resample draws each document and each seed.

    Two schemes evaluated with the same weights are compared on the same resampled documents and seeds (paired
    bootstrap). With n seeds, the bootstrap variance is too small by a factor of (n - 1) / n; deviations of the seed
    weights from 1 are therefore stretched by sqrt(n / (n - 1)).

    Args:
        documents: resamples x documents.
        seeds: resamples x seeds.
    """

    documents: Floats
    seeds: Floats

    # cached: all comparisons of a study use the same weights
    @classmethod
    @lru_cache(maxsize=4)
    def of(cls, documents: int, seeds: int, *, resamples: int = RESAMPLES, seed: int = 0) -> "BootstrapWeights":
        """Draw documents and seeds with replacement, as many as there are."""
        random = np.random.default_rng(seed)
        # counts of draws with replacement are multinomial; as weights they avoid copying documents
        drawn = random.multinomial(documents, np.full(documents, 1 / documents), resamples).astype(float)
        times = random.multinomial(seeds, np.full(seeds, 1 / seeds), resamples).astype(float)
        stretch = math.sqrt(seeds / (seeds - 1)) if seeds > 1 else 1.0
        return cls(drawn, 1 + (times - 1) * stretch)


def nats_to_bits(nats: Floats) -> Floats:
    """Convert cross-entropy from nats to bits."""
    return nats / math.log(2)


def pooled_ratio(amounts: Floats, sizes: Floats) -> float:
    """Return the ratio of total amount to total size: bits per byte, or accuracy.

    Args:
        amounts: seeds x documents.
        sizes: size of each document.
    """
    return float(amounts.mean(0).sum() / sizes.sum())


def bootstrap_ratios(amounts: Floats, sizes: Floats, draws: BootstrapWeights) -> Floats:
    """Return the ratio of every bootstrap resample."""
    total = ((draws.seeds @ amounts / amounts.shape[0]) * draws.documents).sum(1)
    return total / (draws.documents @ sizes)


def percentile_interval(values: Floats, documents: int) -> Interval | None:
    """Central 95 % of bootstrap values (percentile interval); None with fewer than two documents."""
    if documents < 2:
        return None
    edge = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(values, [edge, 100 - edge])
    return float(low), float(high)


def bits_per_byte_interval(rows: Sequence[Mapping[str, Any]]) -> Interval | None:
    """Bootstrap interval of one run's bits per byte, over its documents."""
    amounts = nats_to_bits(np.array([[row["nats"] for row in rows]], float))
    sizes = np.array([row["bytes"] for row in rows], float)
    return percentile_interval(bootstrap_ratios(amounts, sizes, BootstrapWeights.of(len(rows), 1)), len(rows))


def accuracy_interval(right: Floats, asked: Floats) -> Interval:
    """Wilson interval of an accuracy, with clustered questions; it has positive width even at 0 and 100 %.

    Questions of one sequence are correlated, so Wilson's formula takes the effective number of independent questions,
    n = p (1 - p) / var(p). Where all or no answers are correct, n is the number of sequences.

        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Args:
        right: correct answers of each sequence, or their mean over seeds.
        asked: questions of each sequence.
    Source: Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953; the variance of a ratio from Cochran 1977,
        Sampling Techniques, section 6.4.
    """
    count, share = len(asked), float(right.sum() / asked.sum())
    # linearised variance of the ratio p, over sequences
    spread = float(((right - share * asked) ** 2).sum() / asked.sum() ** 2 * count / max(1, count - 1))
    n = min(share * (1 - share) / spread, float(asked.sum())) if spread else float(count)
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


def overlap(one: Interval, other: Interval) -> bool:
    """Whether two intervals overlap."""
    return one[0] <= other[1] and other[0] <= one[1]
