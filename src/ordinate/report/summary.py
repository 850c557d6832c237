"""Each scheme or mixer in numbers, with intervals, and set against the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ordinate.report.quantity import Quantity
from ordinate.report.read import Study
from ordinate.study.comparison import Comparison, Table, compare
from ordinate.study.statistics import Draws, Interval, interval, ratio, resampled


@dataclass(frozen=True)
class Level:
    """How well a scheme or mixer does at one length.

    Args:
        times: the length as a multiple of the trained one.
        length: the length [tokens].
        value: bits per byte, or accuracy.
        interval: where 95 % of the resamples lie; None if there is one document only.
        worse: how much worse than at the trained length.
        worse_interval: its interval.
    """

    times: int
    length: int
    value: float
    interval: Interval | None
    worse: float
    worse_interval: Interval | None


@dataclass(frozen=True)
class Entry:
    """A scheme or mixer in numbers.

    Args:
        label: as written in the plan.
        seeds: finished runs.
        levels: by multiple of the trained length.
        behind: how much worse than the best at the trained length, on the same documents and seeds; None for the
            best, and where they share no seed.
        behind_longest: the same at the longest length.
    """

    label: str
    seeds: int
    levels: dict[int, Level]
    behind: Comparison | None = None
    behind_longest: Comparison | None = None

    @property
    def trained(self) -> Level:
        """At the trained length."""
        return self.levels[min(self.levels)]

    @property
    def longest(self) -> Level:
        """At the longest length measured."""
        return self.levels[max(self.levels)]


def summarise(study: Study) -> list[Entry]:
    """Every scheme or mixer with a finished run, the best at the trained length first."""
    quantity = study.quantity
    runs = {label: study.done(label) for label in study.compared}
    entries = [_entry(label, results, quantity) for label, results in runs.items() if results]
    entries.sort(key=lambda entry: quantity.sign * entry.trained.value)
    if not entries:
        return []
    # some may serve the trained length only
    longest = max(times for entry in entries for times in entry.levels)
    near, far = (compared_at(study, times) for times in (min(entries[0].levels), longest))
    able = [entry for entry in entries if longest in entry.levels]
    furthest = min(able, key=lambda entry: quantity.sign * entry.longest.value).label
    return [
        replace(
            entry,
            behind=near.get((entry.label, entries[0].label)),
            behind_longest=far.get((entry.label, furthest)),
        )
        for entry in entries
    ]


def compared_at(study: Study, times: int) -> Mapping[tuple[str, str], Comparison]:
    """How much worse each is than each other at a multiple of the trained length, on the same documents and seeds."""
    tables = {}
    for label in study.compared:
        results = [run for run in study.done(label) if _measured(run, times, study.quantity)]
        if results:
            tables[label] = _table(results, times)
    return compare(tables, turned=study.quantity.sign < 0)


def _entry(label: str, results: Sequence[dict[str, Any]], quantity: Quantity) -> Entry:
    multiples = [row["times"] for row in results[0]["lengths"] if quantity.measured(row)]
    tables = {times: _table(results, times) for times in multiples}
    first = tables[min(multiples)]
    draws = Draws.of(len(first.sizes), len(results))
    base = resampled(first.amounts, first.sizes, draws)
    levels = {}
    for times, table in tables.items():
        values, value = resampled(table.amounts, table.sizes, draws), ratio(table.amounts, table.sizes)
        length = next(row["length"] for row in results[0]["lengths"] if row["times"] == times)
        worse = quantity.sign * (value - ratio(first.amounts, first.sizes))
        change = interval(quantity.sign * (values - base), len(table.sizes))
        bounds = quantity.interval(values, table.amounts, table.sizes)
        levels[times] = Level(times, length, value, bounds, worse, change)
    return Entry(label, len(results), levels)


def _measured(result: dict[str, Any], times: int, quantity: Quantity) -> bool:
    return any(row["times"] == times and quantity.measured(row) for row in result["lengths"])


def _table(results: Sequence[dict[str, Any]], times: int) -> Table:
    rows = [next(row for row in item["lengths"] if row["times"] == times) for item in results]
    tables = [row["table"] for row in rows]
    seeds = tuple(item["run"]["seed"] for item in results)
    return Table(seeds, np.stack([amounts for amounts, _ in tables]), tables[0][1])
