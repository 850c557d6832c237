"""Confidence intervals of ratios that are measured over seeds and documents: bits per byte, accuracy."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import cast

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
# the smallest p-value that is resolved: far below what any correction asks for
SMALLEST_P = 1e-100

# the largest part of the variance between seeds that a negative variance between documents subtracts: with 0,
# intervals are too wide where most of the variance is that of seeds x documents, with 1 too narrow (tests/evaluation)
LARGEST_EXCESS = 0.25

Floats = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True)
class RatioEstimate:
    """A ratio, or a difference of ratios, with the two variance components of its estimate.

    Seeds and documents are both samples, of training runs and of texts. With one seed only documents are, and the
    estimate is about the trained models, not about the recipe that trained them.

        half-width = sqrt(t_s^2 V_s + t_d^2 V_d)

    t_s and t_d are quantiles of Student's t with the degrees of freedom of each component. With normal errors such an
    interval covers at least as often as it says (Banerjee 1961). The p-value is the smallest error rate whose
    interval excludes 0, so the two cannot disagree.

    V_d is estimated as a difference, which may be negative. It then counts as 0, and reduces V_s, by a quarter at
    most: were it cut off at 0 alone, the sum would be too large on average, and intervals too wide.

    Args:
        value: the estimate.
        seeds: number of seeds.
        documents: number of documents.
        seed_variance: V_s, variance of the mean over seeds; 0 with one seed.
        document_variance: V_d, estimated variance of the mean over documents beyond V_s; may be negative.
        seed_df: degrees of freedom of V_s.
        document_df: degrees of freedom of V_d.
    Source: Banerjee 1961, On confidence interval for two-means problem, https://www.jstor.org/stable/25049128.
    """

    value: float
    seeds: int
    documents: int
    seed_variance: float
    document_variance: float
    seed_df: float
    document_df: float

    def half_width(self, error: float = 1 - CONFIDENCE) -> float:
        """Half the width of the interval that misses the true value with this probability."""
        of_seeds, of_documents = self._components
        squares = (
            (_quantile(error, df) ** 2 * variance)
            for variance, df in ((of_seeds, self.seed_df), (of_documents, self.document_df))
            if variance
        )
        return math.sqrt(sum(squares))

    @property
    def variance(self) -> float:
        """Variance of the estimate, V_s + V_d; at least three quarters of V_s."""
        return sum(self._components)

    @property
    def _components(self) -> tuple[float, float]:
        excess = max(0.0, min(-self.document_variance, LARGEST_EXCESS * self.seed_variance))
        return self.seed_variance - excess, max(0.0, self.document_variance)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval; None with one document, which says nothing about others."""
        if self.documents < 2:
            return None
        half = self.half_width()
        return self.value - half, self.value + half

    @property
    def p(self) -> float:
        """Two-sided p-value of the hypothesis that the true value is 0; 1 with one document."""
        if self.documents < 2 or self.value == 0:
            return 1.0
        return smallest_error(self.half_width, abs(self.value))


def _quantile(error: float, df: float) -> float:
    """Return the two-sided quantile of Student's t."""
    from scipy.special import stdtrit

    return -float(stdtrit(df, error / 2))


def smallest_error(half_width: Callable[[float], float], distance: float) -> float:
    """Return the error rate at which the half-width of an interval is this distance."""
    from scipy.optimize import brentq

    if half_width(SMALLEST_P) <= distance:
        return SMALLEST_P
    # over logarithms, since p-values span many orders of magnitude; at an error of 1 every half-width is 0
    log_p = brentq(lambda x: half_width(math.exp(x)) - distance, math.log(SMALLEST_P), 0.0, xtol=1e-10)
    return math.exp(cast(float, log_p))


def estimate_ratio(amounts: Floats, sizes: Floats) -> RatioEstimate:
    """Estimate the ratio of total amount to total size.

    Args:
        amounts: bits or correct answers, seeds x documents.
        sizes: bytes or questions of each document.
    """
    total = sizes.sum()
    value = pooled_ratio(amounts, sizes)
    return _estimate(value, (amounts - value * sizes) / total, sizes / total)


def estimate_difference(one: Floats, other: Floats, sizes: Floats) -> RatioEstimate:
    """Estimate the difference of two ratios, measured on the same seeds and documents.

    Documents on which the two are equal to the last bit (questions that both answer correctly) say nothing about the
    variance of the others: as in McNemar's test, the degrees of freedom are those of the documents that differ. Where
    all differ by the same amount, the variance is set to that which gives the p-value of the sign test, 2^(1 - n).

    Args:
        one: amounts of the first, seeds x documents.
        other: amounts of the second.
        sizes: sizes of the documents.
    """
    gaps, total = one - other, sizes.sum()
    value = pooled_ratio(gaps, sizes)
    differing = int((gaps != 0).any(0).sum())
    found = _estimate(value, (gaps - value * sizes) / total, sizes / total, differing)
    # rounding leaves a variance of about 1e-32 of the square
    if value and found.variance < 1e-20 * value**2:
        quantile = _quantile(2.0 ** (1 - differing), found.document_df)
        # of a single document that differs the quantile is 0
        return replace(found, document_variance=(value / max(quantile, 1e-3)) ** 2)
    return found


def estimate_change(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> RatioEstimate:
    """Estimate how much a second ratio exceeds a first, with the same seeds and documents but sizes of their own.

    Args:
        first: amounts and sizes of the first.
        second: amounts and sizes of the second.
    """
    value, influence, share = 0.0, 0.0, 0.0
    for sign, (amounts, sizes) in ((-1, first), (1, second)):
        total, ratio = sizes.sum(), pooled_ratio(amounts, sizes)
        value += sign * ratio
        influence = influence + sign * (amounts - ratio * sizes) / total
        share = share + sizes / total / 2
    return _estimate(value, np.asarray(influence), np.asarray(share))


def _estimate(value: float, influence: Floats, share: Floats, differing: int | None = None) -> RatioEstimate:
    """Compute the variance components from the influence of each seed and document on the estimate.

    V_s is the variance between the ratios of the seeds. The variance between documents is that of their residuals,
    each divided by the part of it that remains when the mean is subtracted (CR2). Its degrees of freedom are an
    effective number of documents less 1, so that one long document among short ones counts little more than one: for
    shares p of the total size the Hill number of order 5, (sum p^5)^(-1/4). That of order 2, Kish's 1 / sum p^2, is a
    little too large where sizes differ, Satterthwaite's (sum p^2)^2 / sum p^4 far too small
    (`benchmarks/calibration.py`). The part that is due to seeds x documents is in V_s already, and is subtracted, but
    not where documents are few: the difference of two uncertain variances is then too often negative.

    Source: CR2: Bell and McCaffrey 2002, Bias reduction in standard errors for linear regression with multi-stage
        samples; effective numbers: Hill 1973, https://doi.org/10.2307/1934352, and Kish 1965, Survey Sampling, 8.2;
        two-way clustering: Cameron, Gelbach and Miller 2011, https://doi.org/10.1198/jbes.2010.07136.

    Args:
        value: the estimate.
        influence: seeds x documents; the sum over documents is the deviation of a seed from the estimate.
        share: share of each document in the total size.
        differing: number of documents that carry information about the variance; None: all.
    """
    seeds, documents = influence.shape
    per_seed = influence.sum(1)
    residuals = influence.mean(0)
    squares = float((share**2).sum())
    # with one document nothing remains; no interval is given there
    remaining = np.maximum(1 - 2 * share + squares, 1e-12)
    seed_variance = interaction = 0.0
    if seeds > 1:
        seed_variance = float(per_seed.var(ddof=1)) / seeds
        rest = influence - residuals - per_seed[:, None] * share
        interaction = float(((rest**2).sum(0) / remaining).sum()) / (seeds - 1) / seeds
    between = float((residuals**2 / remaining).sum())
    subtracted_share = max(0.0, 1 - (2 * squares) ** 2)
    effective = float((share**5).sum()) ** (-1 / 4)
    if differing is not None:
        effective = min(effective, differing)
    return RatioEstimate(
        value=value,
        seeds=seeds,
        documents=documents,
        seed_variance=seed_variance,
        document_variance=between - subtracted_share * interaction,
        seed_df=max(1, seeds - 1),
        document_df=max(1.0, effective - 1),
    )


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


def accuracy_interval(right: Floats, asked: Floats) -> Interval:
    """Wilson interval of an accuracy, with clustered questions; it has positive width even at 0 and 100 %.

    Questions of one sequence are correlated, so Wilson's formula takes the effective number of independent questions,
    n = p (1 - p) / V, and the quantile of the two-component interval, z = half-width / sqrt(V), with V its variance.
    Where all or no answers are correct, n is the number of sequences, and z that of the normal distribution.

        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Args:
        right: correct answers of each sequence; or seeds x sequences.
        asked: questions of each sequence.
    Source: Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953.
    """
    found = estimate_ratio(np.atleast_2d(right), asked)
    share, variance = found.value, found.variance
    n, z = float(len(asked)), NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    if variance and found.documents > 1:
        n, z = min(share * (1 - share) / variance, float(asked.sum())), found.half_width() / math.sqrt(variance)
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))
