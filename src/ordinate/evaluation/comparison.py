"""Paired comparisons of models on the same documents and seeds, corrected for multiple testing (Holm)."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ordinate.evaluation.statistics import CONFIDENCE, Floats, Interval, estimate_difference

# largest number of seeds considered in the power estimate
MOST_SEEDS = 100


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

    With several seeds it is about the two recipes, and with one about the two trained models only. `consistent` is
    about the trained models in both cases.

    Args:
        difference: difference of their ratios (bits per byte, accuracy).
        interval: 95 % interval of the difference, not corrected for other comparisons; None with one document.
        p: two-sided p-value under the null hypothesis of no difference; 1 where no test is possible.
        adjusted: p-value adjusted for all comparisons (Holm): with a threshold of 0.05, at most one in twenty studies
            without any difference reports one.
        effect: standardised effect size: the difference in standard deviations between seeds; None with one seed.
        seeds_needed: estimated number of seeds for a significant difference of this size; None if no number suffices,
            or with one seed.
        seeds: number of seeds that the two have in common.
        documents: number of documents.
        consistent: whether the difference is significant, or the trained models of every common seed by themselves
            differ significantly in its direction on these documents, which says nothing about other seeds.
    """

    difference: float
    interval: Interval | None
    p: float
    adjusted: float
    effect: float | None
    seeds_needed: int | None
    seeds: int
    documents: int
    consistent: bool

    @property
    def significant(self) -> bool:
        """Whether the difference is significant after correction for multiple testing."""
        return self.adjusted < 1 - CONFIDENCE

    @property
    def significantly_above(self) -> bool:
        """Whether the first has the significantly higher value."""
        return self.significant and self.difference > 0

    @property
    def consistently_above(self) -> bool:
        """Whether the first has the higher value, and the difference is `consistent`."""
        return self.consistent and self.difference > 0

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

    A pair is judged by its own documents and seeds alone (`RatioEstimate`): no variance is pooled with that of other
    models, which may differ by orders of magnitude where some diverge. Other models only change the number of
    comparisons: all pairs of all groups are corrected together by Holm's method, which also covers selecting the
    best model afterwards.

    Args:
        groups: measurements of each model, by name; of a grid, one group for each cell and each mean over cells.
    Source: Holm 1979, https://www.jstor.org/stable/4615733.
    """
    found = [_pairs(tables) for tables in groups]
    p_values = [[pair.estimate.p for pair in pairs.values()] for pairs in found]
    corrected = iter(holm([p for group in p_values for p in group]))
    total = sum(map(len, found))
    return [
        _LazyComparisons(pairs, total, {names: (p, next(corrected)) for names, p in zip(pairs, group, strict=True)})
        for pairs, group in zip(found, p_values, strict=True)
    ]


def _pairs(tables: Mapping[str, Measurements]) -> dict[tuple[str, str], "_Pair"]:
    found = {}
    for one, other in combinations(tables, 2):
        seeds = sorted(set(tables[one].seeds) & set(tables[other].seeds))
        if seeds:
            found[one, other] = _Pair(tables[one], tables[other], seeds)
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple testing by Holm's step-down method, which bounds the family-wise error rate."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        # the running maximum keeps adjusted p-values in the order of the raw ones
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


class _LazyComparisons(Mapping[tuple[str, str], Comparison]):
    """All comparisons, completed on access: the power estimate is slow, and a report shows few of many pairs."""

    def __init__(
        self,
        pairs: "Mapping[tuple[str, str], _Pair]",
        total: int,
        p_values: Mapping[tuple[str, str], tuple[float, float]],
    ) -> None:
        self.pairs, self.total, self.p_values = pairs, total, p_values

    def __getitem__(self, names: tuple[str, str]) -> Comparison:
        known = names if names in self.pairs else names[::-1]
        found = self.pairs[known].comparison(self.total, *self.p_values[known])
        return found if known == names else found.reversed()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (names for pair in self.pairs for names in (pair, pair[::-1]))

    def __len__(self) -> int:
        return 2 * len(self.pairs)


class _Pair:
    """Two models on the seeds that they have in common."""

    def __init__(self, one: Measurements, other: Measurements, seeds: Sequence[int]) -> None:
        self.first, self.second, self.sizes = one.for_seeds(seeds), other.for_seeds(seeds), one.sizes
        self.estimate = estimate_difference(self.first, self.second, self.sizes)

    def comparison(self, total: int, p: float, adjusted: float) -> Comparison:
        """Build the comparison, with the power estimate.

        Args:
            total: number of comparisons that are corrected together.
            p: p-value.
            adjusted: p-value adjusted for all comparisons.
        """
        found = self.estimate
        deviation = math.sqrt(found.seed_variance * found.seeds)
        return Comparison(
            difference=found.value,
            interval=found.interval,
            p=p,
            adjusted=adjusted,
            effect=found.value / deviation if deviation else None,
            seeds_needed=self._seeds_needed(total) if deviation else None,
            seeds=found.seeds,
            documents=found.documents,
            consistent=adjusted < 1 - CONFIDENCE or (found.seeds > 1 and self._each_seed_differs(total)),
        )

    def _seeds_needed(self, total: int) -> int | None:
        """Return the number of seeds with which the observed difference would be significant."""
        counts = range(2, MOST_SEEDS + 1)
        # p-values fall with the number of seeds, so the smallest sufficient one is found by bisection
        enough = bisect_left(counts, True, key=lambda count: self._p_with(count) * total < 1 - CONFIDENCE)
        return counts[enough] if enough < len(counts) else None

    def _each_seed_differs(self, total: int) -> bool:
        """Whether every seed by itself is significant in one direction: an intersection-union test (Bonferroni)."""
        ahead = (self.first - self.second).sum(1) > 0
        return len(set(ahead.tolist())) == 1 and all(
            estimate_difference(one[None], other[None], self.sizes).p * total < 1 - CONFIDENCE
            for one, other in zip(self.first, self.second, strict=True)
        )

    def _p_with(self, seeds: int) -> float:
        """Return the p-value of the observed difference, if it had been measured with this number of seeds."""
        found = self.estimate
        return replace(found, seed_variance=found.seed_variance * found.seeds / seeds, seed_df=seeds - 1).p
