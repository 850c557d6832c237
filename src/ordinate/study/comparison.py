"""Two compared on the same documents and seeds, and what remains of it when there are many."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from ordinate.study.statistics import LEVEL, Draws, Interval, Numbers, interval, ratio, resampled

# more seeds than this are not worth waiting for
MOST_SEEDS = 100
# places at which the density of a t is summed
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(256)


@dataclass(frozen=True)
class Table:
    """What was measured of one model at one length.

    Args:
        seeds: of its finished runs, in order.
        amounts: bits or right answers, seeds x documents.
        sizes: bytes or questions, of each document.
    """

    seeds: tuple[int, ...]
    amounts: Numbers
    sizes: Numbers

    def of(self, seeds: Sequence[int]) -> Numbers:
        """The amounts of these seeds."""
        # without a copy where all are asked for: there are many pairs
        return (
            self.amounts if tuple(seeds) == self.seeds else self.amounts[[self.seeds.index(seed) for seed in seeds]]
        )


@dataclass(frozen=True)
class Comparison:
    """How much more one has than another, and how sure that is.

    Args:
        difference: of their ratios (bits per byte, share of right answers).
        interval: where 95 % of the resampled differences lie; None: one document and one seed cannot tell.
        p: how often chance alone would show as much, were there no difference; 1 where nothing can be told.
        adjusted: the same for all comparisons together: below 0.05 at most once in twenty such studies without any
            difference.
        effect: the difference in standard deviations of a single seed's; None with one seed.
        seeds_needed: how many seeds would make a difference of this size sure; None: no number of them does, or there
            is one seed only.
    """

    difference: float
    interval: Interval | None
    p: float
    adjusted: float
    effect: float | None
    seeds_needed: int | None

    @property
    def sure(self) -> bool:
        """Whether there is a difference, all comparisons considered."""
        return self.adjusted < 1 - LEVEL

    def turned(self) -> "Comparison":
        """The other compared with the one."""
        bounds = None if self.interval is None else (-self.interval[1], -self.interval[0])
        effect = None if self.effect is None else -self.effect
        return replace(self, difference=-self.difference, interval=bounds, effect=effect)


def compare(tables: Mapping[str, Table]) -> Mapping[tuple[str, str], Comparison]:
    """Every two of them, in both orders; pairs that share no seed are left out. See `compare_all`."""
    return compare_all([tables])[0]


def compare_all(groups: Sequence[Mapping[str, Table]]) -> list[Mapping[tuple[str, str], Comparison]]:
    """Every two of each group, in both orders; pairs that share no seed are left out.

    The difference d of two is measured on the documents and seeds that they share. Its variance has a part of the
    seeds and a part of the documents. How much training is a matter of luck is estimated from all pairs of a group
    together, and not below what the pair itself shows; the t has the fewest degrees of freedom of the two parts:

        t = d / sqrt(s^2 / S + v);  s^2 = max(of the pair, mean of all pairs);  df = min((models - 1) (S - 1), D - 1)

    Few seeds of few models therefore decide little, as they should. To v is added what one more document would bring
    that is as far off as the furthest, so that a few answers, all one way, do not prove much. All pairs of all groups
    together are corrected by Holm's method, which also makes up for the best being picked after the fact.

    Args:
        groups: what was measured of each, by name; of a grid, for each cell and each mean over cells.
    Source: the variance of luck from a two-way analysis of variance, models x seeds: Fisher 1935, The Design of
        Experiments, section 26; Holm 1979, https://www.jstor.org/stable/4615733.
    """
    found = [_pairs(tables) for tables in groups]
    total = sum(map(len, found))
    fields = [_field(pairs, len(tables), total) for pairs, tables in zip(found, groups, strict=True)]
    chances = [
        [pair.chance(field, pair.seeds) for pair in pairs.values()]
        for pairs, field in zip(found, fields, strict=True)
    ]
    corrected = iter(holm([p for group in chances for p in group]))
    return [
        _Compared(pairs, field, {names: (p, next(corrected)) for names, p in zip(pairs, group, strict=True)})
        for pairs, field, group in zip(found, fields, chances, strict=True)
    ]


def _pairs(tables: Mapping[str, Table]) -> dict[tuple[str, str], "_Pair"]:
    found = {}
    for one, other in combinations(tables, 2):
        seeds = sorted(set(tables[one].seeds) & set(tables[other].seeds))
        if seeds:
            found[one, other] = _Pair(tables[one], tables[other], seeds)
    return found


def _field(pairs: Mapping[tuple[str, str], "_Pair"], models: int, total: int) -> "_Field":
    repeated = [pair.luck for pair in pairs.values() if pair.seeds > 1]
    return _Field(models, total, sum(repeated) / max(1, len(repeated)))


def holm(chances: Sequence[float]) -> list[float]:
    """Chances, corrected so that one below 0.05 among them is as rare as it would be alone."""
    adjusted, largest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[place]))
        adjusted[place] = largest
    return adjusted


def tails(t: float, df: float) -> float:
    """How often a t with so many degrees of freedom lies further from 0 than this, on either side.

    P(|T| > t) = integral of cos^(df - 1) from atan(t / sqrt(df)) to pi / 2, over that from 0.
    """
    start = math.atan(abs(t) / math.sqrt(df))
    half = (math.pi / 2 - start) / 2
    angles = start + half * (1 + _NODES)
    area = half * float(_WEIGHTS @ np.cos(angles) ** (df - 1))
    whole = math.sqrt(math.pi) / 2 * math.exp(math.lgamma(df / 2) - math.lgamma((df + 1) / 2))
    return min(1.0, area / whole)


@dataclass(frozen=True)
class _Field:
    """All of a group: how many models, how many pairs of all groups, the variance of a difference between seeds."""

    models: int
    pairs: int
    luck: float


class _Compared(Mapping[tuple[str, str], Comparison]):
    """All comparisons, each resampled when it is asked for: a report tells few of many."""

    def __init__(
        self,
        pairs: "Mapping[tuple[str, str], _Pair]",
        field: _Field,
        chances: Mapping[tuple[str, str], tuple[float, float]],
    ) -> None:
        self.pairs, self.field, self.chances = pairs, field, chances

    def __getitem__(self, names: tuple[str, str]) -> Comparison:
        known = names if names in self.pairs else names[::-1]
        found = self.pairs[known].comparison(self.field, *self.chances[known])
        return found if known == names else found.turned()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (names for pair in self.pairs for names in (pair, pair[::-1]))

    def __len__(self) -> int:
        return 2 * len(self.pairs)


class _Pair:
    """Two on the seeds that they share."""

    def __init__(self, one: Table, other: Table, seeds: Sequence[int]) -> None:
        self.one, self.other, self.sizes = one.of(seeds), other.of(seeds), one.sizes
        self.difference = ratio(self.one, self.sizes) - ratio(self.other, self.sizes)
        self.seeds, self.documents = self.one.shape
        gaps, total, count = self.one - self.other, self.sizes.sum(), self.documents
        self.luck = float((gaps.sum(1) / total).var(ddof=1)) if self.seeds > 1 else 0.0
        rest = gaps.mean(0) - self.difference * self.sizes
        # as if one document more were as far off as the furthest: a few that differ, all one way, prove little
        squares = (rest**2).sum() * count / (count - 1) + (gaps.mean(0) ** 2).max() if count > 1 else 0.0
        self.of_documents = float(squares / total**2)

    def chance(self, field: _Field, seeds: int) -> float:
        """How often chance would show as much with so many seeds."""
        variance = max(self.luck, field.luck) / seeds + self.of_documents
        freedom = [(field.models - 1) * (seeds - 1), self.documents - 1]
        df = min((free for free in freedom if free > 0), default=0)
        if df == 0 or self.difference == 0:
            return 1.0
        return tails(self.difference / math.sqrt(variance), df) if variance else 0.0

    def comparison(self, field: _Field, p: float, adjusted: float) -> Comparison:
        """What is said of it."""
        draws = Draws.of(self.documents, self.seeds)
        differences = resampled(self.one, self.sizes, draws) - resampled(self.other, self.sizes, draws)
        luck = math.sqrt(max(self.luck, field.luck)) if self.seeds > 1 else 0.0
        counts = range(2, MOST_SEEDS + 1)
        enough = bisect_left(counts, True, key=lambda count: self.chance(field, count) * field.pairs < 1 - LEVEL)
        return Comparison(
            difference=self.difference,
            interval=interval(differences, self.documents),
            p=p,
            adjusted=adjusted,
            effect=self.difference / luck if luck else None,
            seeds_needed=counts[enough] if luck and enough < len(counts) else None,
        )
