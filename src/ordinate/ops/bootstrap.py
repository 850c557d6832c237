"""How sure a mean over texts is: draw the texts again, many times."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.checks import need

RESAMPLES = 1000
LEVEL = 0.95

Interval = tuple[float, float]


@dataclass(frozen=True)
class Mean:
    """A mean over texts and where it lies in 95 % of resamples.

    Args:
        value: the mean.
        low: lower end; None where one text alone cannot tell.
        high: upper end.
    """

    value: float
    low: float | None
    high: float | None


def resampled_means(
    values: Float[ndarray, "texts *what"], seed: int, resamples: int = RESAMPLES
) -> Float[ndarray, "resamples *what"]:
    """The mean over texts of every resample, each of as many texts as there are, drawn with replacement.

    What belongs to one text goes together, so numbers of one text need not be independent. Numbers of several arms
    beside each other (*what) are drawn alike: their differences are paired.

    Args:
        values: a number, or several, for each text.
        seed: of the draws.
        resamples: how many.
    """
    count = values.shape[0]
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples)
    return np.tensordot(draws / count, values, axes=1)


def percentiles(values: Float[ndarray, "resamples *what"], level: float = LEVEL) -> tuple[ndarray, ndarray]:
    """The ends of the middle part of resampled values."""
    edge = 100 * (1 - level) / 2
    low, high = np.percentile(values, [edge, 100 - edge], axis=0)
    return np.asarray(low), np.asarray(high)


def expanded(level: float, texts: int) -> float:
    """The level at which percentiles of few texts cover as often as `level` says.

        alpha' / 2 = Phi(-sqrt(n / (n - 1)) t),    t the quantile of Student's distribution of n - 1 degrees

    Resamples of n texts spread too little by sqrt((n - 1) / n), and their tails are those of a normal distribution.

    Source: Hesterberg 2015, What teachers should know about the bootstrap, section 3.3.
    """
    t = _student(NormalDist().inv_cdf((1 + level) / 2), texts - 1)
    return 1 - 2 * NormalDist().cdf(-math.sqrt(texts / (texts - 1)) * t)


def mean_intervals(
    values: Float[ndarray, "texts *what"], seed: int, level: float = LEVEL
) -> tuple[ndarray, ndarray, ndarray]:
    """The mean over texts of each number, and the ends of its interval; NaN ends for one text alone.

    Raises:
        ValueError: no text at all.
    """
    values = np.asarray(values, float)
    need(len(values) > 0, "a mean needs a text or more", "got none", "give more text")
    middle = np.asarray(values.mean(0))
    if len(values) < 2:
        return middle, np.full_like(middle, np.nan), np.full_like(middle, np.nan)
    low, high = percentiles(resampled_means(values, seed), expanded(level, len(values)))
    return middle, low, high


def mean_interval(values: Float[ndarray, "texts"], seed: int, level: float = LEVEL) -> Mean:
    """The mean over texts with its interval."""
    middle, low, high = (float(x) for x in mean_intervals(values, seed, level))
    return Mean(middle, None, None) if math.isnan(low) else Mean(middle, low, high)


def _student(z: float, degrees: int) -> float:
    """The quantile of Student's distribution that belongs to a normal quantile.

    Source: Abramowitz and Stegun 1964, 26.7.5; within 2 % from 3 degrees of freedom on.
    """
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / degrees ** (power + 1) for power, term in enumerate(terms))
