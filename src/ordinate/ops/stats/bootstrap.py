"""Bootstrap confidence intervals of means over texts; texts are the resampled units."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.checks import need

RESAMPLES = 1000
LEVEL = 0.95
# fewest values of which the resampled means have the tails that an interval needs
FEWEST = 8

Interval = tuple[float, float]


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over texts and its bootstrap confidence interval.

    Args:
        value: the mean.
        low: lower end; None with a single text, which has no spread.
        high: upper end.
    """

    value: float
    low: float | None
    high: float | None


def resampled_means(
    values: Float[ndarray, "texts *what"], seed: int, resamples: int = RESAMPLES
) -> Float[ndarray, "resamples *what"]:
    """Return the mean over texts of every bootstrap resample (as many texts as given, with replacement).

    Whole texts are drawn (a cluster bootstrap), so values within one text need not be independent. All columns
    (*what) share the draws: differences between columns, such as two arms of a study, are paired.

    Args:
        values: one or several values for each text.
        seed: of the draws.
        resamples: number of resamples.
    """
    count = values.shape[0]
    # only how often each text is drawn matters: multinomial counts make all resamples one matrix product
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples)
    return np.tensordot(draws / count, values, axes=1)


def percentiles(values: Float[ndarray, "resamples *what"], level: float = LEVEL) -> tuple[ndarray, ndarray]:
    """Return the ends of the central interval that holds this share of the resampled values."""
    edge = 100 * (1 - level) / 2
    low, high = np.percentile(values, [edge, 100 - edge], axis=0)
    return np.asarray(low), np.asarray(high)


def small_sample_level(level: float, texts: int) -> float:
    """Return the percentile level at which the bootstrap interval of few texts has the coverage `level`.

        alpha' / 2 = Phi(-sqrt(n / (n - 1)) t),    t the quantile of Student's distribution of n - 1 degrees

    The spread of the resampled means is too small by sqrt((n - 1) / n), and their tails are those of a normal
    distribution.

    Source: Hesterberg 2015, What teachers should know about the bootstrap, section 3.3.
    """
    t = student_quantile((1 + level) / 2, texts - 1)
    return 1 - 2 * NormalDist().cdf(-math.sqrt(texts / (texts - 1)) * t)


def mean_intervals(
    values: Float[ndarray, "texts *what"], seed: int, level: float = LEVEL
) -> tuple[ndarray, ndarray, ndarray]:
    """Return the mean over texts of each value and the ends of its confidence interval; NaN ends for a single text.

    Of fewer than 8 texts it is Student's interval: no mean of resampled texts is beyond the smallest and the largest
    of them, which are too close together to hold the true mean as often as they should.

    Raises:
        ValueError: there are no texts.
    """
    values = np.asarray(values, float)
    need(len(values) > 0, "a mean needs at least one text", "got none", "give more text")
    middle = np.asarray(values.mean(0))
    if len(values) < FEWEST:
        return student_intervals(values, level)
    low, high = percentiles(resampled_means(values, seed), small_sample_level(level, len(values)))
    return middle, low, high


def mean_interval(values: Float[ndarray, "texts"], seed: int, level: float = LEVEL) -> MeanEstimate:
    """Return the mean over texts with its confidence interval."""
    middle, low, high = (float(x) for x in mean_intervals(values, seed, level))
    return MeanEstimate(middle, None, None) if math.isnan(low) else MeanEstimate(middle, low, high)


def student_intervals(
    values: Float[ndarray, "groups *what"], level: float = LEVEL
) -> tuple[ndarray, ndarray, ndarray]:
    """Return the mean of each value and the ends of Student's confidence interval; NaN ends for a single group.

    For few groups of texts, of which a bootstrap has no tails.
    """
    count, middle = len(values), np.asarray(values.mean(0))
    if count < 2:
        return middle, np.full_like(middle, np.nan), np.full_like(middle, np.nan)
    half = student_quantile((1 + level) / 2, count - 1) * values.std(0, ddof=1) / math.sqrt(count)
    return middle, np.asarray(middle - half), np.asarray(middle + half)


def student_quantile(probability: float, degrees: float) -> float:
    """Return a quantile of Student's t distribution: exact for 1 and 2 degrees of freedom, else an expansion.

    Source: Abramowitz and Stegun 1964, 26.7.5; that of 0.975 within 2 % from 3 degrees of freedom on.
    """
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / degrees ** (power + 1) for power, term in enumerate(terms))
