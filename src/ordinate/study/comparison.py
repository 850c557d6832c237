"""Paired comparisons of models on the same documents and seeds, corrected for multiple testing (Holm)."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from ordinate.study.statistics import (
    CONFIDENCE,
    BootstrapWeights,
    Floats,
    Interval,
    bootstrap_ratios,
    percentile_interval,
    pooled_ratio,
)

# largest number of seeds considered in the power estimate
MOST_SEEDS = 100
# Gauss-Legendre nodes and weights for the tail integral of Student's t
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(256)


@dataclass(frozen=True)
class Measurements:
    """Measurements of one model at one length.

    Args:
        seeds: seeds of its finished runs, in order.
        amounts: bits or correct answers, seeds x documents.
        sizes: bytes or questions of each document.
    """

    seeds: tuple[int, ...]
    amounts: Floats
    sizes: Floats

    def for_seeds(self, seeds: Sequence[int]) -> Floats:
        """Return the amounts of these seeds."""
        # no copy where all seeds are taken: there are many pairs
        return (
            self.amounts if tuple(seeds) == self.seeds else self.amounts[[self.seeds.index(seed) for seed in seeds]]
        )


@dataclass(frozen=True)
class Comparison:
    """The difference between two models and its statistical significance.

    Args:
        difference: difference of their ratios (bits per byte, accuracy).
        interval: 95 % bootstrap interval of the difference; None with fewer than two documents.
        p: two-sided p-value under the null hypothesis of no difference; 1 where no test is possible.
        adjusted: p-value adjusted for all comparisons (Holm): with a threshold of 0.05, at most one in twenty studies
            without any difference reports one.
        effect: standardised effect size: the difference in standard deviations between seeds; None with one seed.
        seeds_needed: estimated number of seeds for a significant difference of this size; None if no number suffices,
            or with one seed.
    """

    difference: float
    interval: Interval | None
    p: float
    adjusted: float
    effect: float | None
    seeds_needed: int | None

    @property
    def significant(self) -> bool:
        """Whether the difference is significant after correction for multiple testing."""
        return self.adjusted < 1 - CONFIDENCE

    def reversed(self) -> "Comparison":
        """Return the comparison in the other direction."""
        bounds = None if self.interval is None else (-self.interval[1], -self.interval[0])
        effect = None if self.effect is None else -self.effect
        return replace(self, difference=-self.difference, interval=bounds, effect=effect)


def compare(tables: Mapping[str, Measurements]) -> Mapping[tuple[str, str], Comparison]:
    """Compare every pair of models, in both orders; pairs without a common seed are left out. See `compare_all`."""
    return compare_all([tables])[0]


def compare_all(groups: Sequence[Mapping[str, Measurements]]) -> list[Mapping[tuple[str, str], Comparison]]:
    """Compare every pair of models of each group, in both orders; pairs without a common seed are left out.

    The difference d of two models is measured on their common documents and seeds. Its variance has two components,
    seeds and documents. The seed variance s^2 is pooled over all pairs of a group, but not below the pair's own; the
    t statistic takes the smaller of the two components' degrees of freedom:

        t = d / sqrt(s^2 / S + v);  s^2 = max(of the pair, mean of all pairs);  df = min((models - 1) (S - 1), D - 1)

    Few seeds of few models therefore have little power, as they should. The document variance v includes one more
    document with the largest difference observed, so that a few answers, all in one direction, do not suffice. All
    pairs of all groups are corrected together by Holm's method, which also covers selecting the best model
    afterwards.

    Args:
        groups: measurements of each model, by name; of a grid, one group for each cell and each mean over cells.
    Source: variance between seeds from a two-way analysis of variance, models x seeds: Fisher 1935, The Design of
        Experiments, section 26; Holm 1979, https://www.jstor.org/stable/4615733.
    """
    found = [_pairs(tables) for tables in groups]
    total = sum(map(len, found))
    pools = [_pool(pairs, len(tables), total) for pairs, tables in zip(found, groups, strict=True)]
    p_values = [
        [pair.p_value(field, pair.seeds) for pair in pairs.values()]
        for pairs, field in zip(found, pools, strict=True)
    ]
    corrected = iter(holm([p for group in p_values for p in group]))
    return [
        _LazyComparisons(pairs, field, {names: (p, next(corrected)) for names, p in zip(pairs, group, strict=True)})
        for pairs, field, group in zip(found, pools, p_values, strict=True)
    ]


def _pairs(tables: Mapping[str, Measurements]) -> dict[tuple[str, str], "_Pair"]:
    found = {}
    for one, other in combinations(tables, 2):
        seeds = sorted(set(tables[one].seeds) & set(tables[other].seeds))
        if seeds:
            found[one, other] = _Pair(tables[one], tables[other], seeds)
    return found


def _pool(pairs: Mapping[tuple[str, str], "_Pair"], models: int, total: int) -> "_GroupPool":
    # pairs with a single common seed have no variance between seeds to contribute
    repeated = [pair.seed_variance for pair in pairs.values() if pair.seeds > 1]
    return _GroupPool(models, total, sum(repeated) / max(1, len(repeated)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple testing by Holm's step-down method, which bounds the family-wise error rate."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        # the running maximum keeps adjusted p-values in the order of the raw ones
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def t_test_p_value(t: float, df: float) -> float:
    """Two-sided p-value of Student's t distribution.

    P(|T| > t) = integral of cos^(df - 1) from atan(t / sqrt(df)) to pi / 2, divided by that from 0.
    """
    start = math.atan(abs(t) / math.sqrt(df))
    half = (math.pi / 2 - start) / 2
    angles = start + half * (1 + _NODES)
    area = half * float(_WEIGHTS @ np.cos(angles) ** (df - 1))
    # closed form of the integral from 0 to pi / 2; gamma functions by logarithms, as df may be large
    whole = math.sqrt(math.pi) / 2 * math.exp(math.lgamma(df / 2) - math.lgamma((df + 1) / 2))
    return min(1.0, area / whole)


@dataclass(frozen=True)
class _GroupPool:
    """Shared by a group: number of models, number of pairs in all groups, pooled variance between seeds."""

    models: int
    pairs: int
    seed_variance: float


class _LazyComparisons(Mapping[tuple[str, str], Comparison]):
    """All comparisons, computed on access: bootstrapping is slow, and a report shows few of many pairs."""

    def __init__(
        self,
        pairs: "Mapping[tuple[str, str], _Pair]",
        field: _GroupPool,
        chances: Mapping[tuple[str, str], tuple[float, float]],
    ) -> None:
        self.pairs, self.field, self.chances = pairs, field, chances

    def __getitem__(self, names: tuple[str, str]) -> Comparison:
        known = names if names in self.pairs else names[::-1]
        found = self.pairs[known].comparison(self.field, *self.chances[known])
        return found if known == names else found.reversed()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (names for pair in self.pairs for names in (pair, pair[::-1]))

    def __len__(self) -> int:
        return 2 * len(self.pairs)


class _Pair:
    """Two models on the seeds that they have in common."""

    def __init__(self, one: Measurements, other: Measurements, seeds: Sequence[int]) -> None:
        self.one, self.other, self.sizes = one.for_seeds(seeds), other.for_seeds(seeds), one.sizes
        self.difference = pooled_ratio(self.one, self.sizes) - pooled_ratio(self.other, self.sizes)
        self.seeds, self.documents = self.one.shape
        gaps, total, count = self.one - self.other, self.sizes.sum(), self.documents
        self.seed_variance = float((gaps.sum(1) / total).var(ddof=1)) if self.seeds > 1 else 0.0
        rest = gaps.mean(0) - self.difference * self.sizes
        # linearised residuals of the ratio estimator: their sum of squares gives its variance over documents
        # plus one pseudo-document with the largest observed difference: guards against a few documents that all
        # differ in one direction
        squares = (rest**2).sum() * count / (count - 1) + (gaps.mean(0) ** 2).max() if count > 1 else 0.0
        self.document_variance = float(squares / total**2)

    def p_value(self, field: _GroupPool, seeds: int) -> float:
        """Two-sided p-value of the observed difference, if it had been measured with this number of seeds."""
        variance = max(self.seed_variance, field.seed_variance) / seeds + self.document_variance
        freedom = [(field.models - 1) * (seeds - 1), self.documents - 1]
        df = min((free for free in freedom if free > 0), default=0)
        if df == 0 or self.difference == 0:
            return 1.0
        return t_test_p_value(self.difference / math.sqrt(variance), df) if variance else 0.0

    def comparison(self, field: _GroupPool, p: float, adjusted: float) -> Comparison:
        """Build the comparison, with bootstrap interval and power estimate."""
        draws = BootstrapWeights.of(self.documents, self.seeds)
        differences = bootstrap_ratios(self.one, self.sizes, draws) - bootstrap_ratios(self.other, self.sizes, draws)
        deviation = math.sqrt(max(self.seed_variance, field.seed_variance)) if self.seeds > 1 else 0.0
        counts = range(2, MOST_SEEDS + 1)
        # p-values fall with the number of seeds, so the smallest sufficient one is found by bisection
        enough = bisect_left(
            counts, True, key=lambda count: self.p_value(field, count) * field.pairs < 1 - CONFIDENCE
        )
        return Comparison(
            difference=self.difference,
            interval=percentile_interval(differences, self.documents),
            p=p,
            adjusted=adjusted,
            effect=self.difference / deviation if deviation else None,
            seeds_needed=counts[enough] if deviation and enough < len(counts) else None,
        )
