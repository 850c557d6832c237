"""Each scheme or mixer in numbers, with intervals, and set against the best."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ordinate.report.quantity import Quantity
from ordinate.report.read import Study
from ordinate.study.statistics import Draws, Interval, Numbers, interval, ratio, resampled


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
        behind: how much worse than the best on the same documents and seeds; None for the best.
        behind_interval: its interval.
    """

    label: str
    seeds: int
    levels: dict[int, Level]
    behind: float | None = None
    behind_interval: Interval | None = None

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
    for place, entry in enumerate(entries[1:], 1):
        if found := behind(study, entry.label, entries[0].label):
            entries[place] = replace(entry, behind=found[0], behind_interval=found[1])
    return entries


def _entry(label: str, results: Sequence[dict[str, Any]], quantity: Quantity) -> Entry:
    multiples = [row["times"] for row in results[0]["lengths"] if quantity.measured(row)]
    tables = {times: _table(results, times, quantity) for times in multiples}
    first = tables[min(multiples)]
    draws = Draws.of(first[0].shape[1], len(results))
    base = resampled(*first, draws)
    levels = {}
    for times, table in tables.items():
        values, value = resampled(*table, draws), ratio(*table)
        length = next(row["length"] for row in results[0]["lengths"] if row["times"] == times)
        worse = quantity.sign * (value - ratio(*first))
        change = interval(quantity.sign * (values - base), len(table[1]))
        levels[times] = Level(times, length, value, quantity.interval(values, *table), worse, change)
    return Entry(label, len(results), levels)


def behind(study: Study, label: str, other: str) -> tuple[float, Interval | None] | None:
    """How much worse one is than another at the trained length, on the same documents and seeds, with the interval.

    None where they share no seed.
    """
    runs = {name: {run["run"]["seed"]: run for run in study.done(name)} for name in (label, other)}
    seeds = sorted(runs[label].keys() & runs[other].keys())
    if not seeds:
        return None
    times = min(row["times"] for row in runs[label][seeds[0]]["lengths"] if study.quantity.measured(row))
    one, two = (_table([runs[name][seed] for seed in seeds], times, study.quantity) for name in (label, other))
    draws, sign = Draws.of(len(one[1]), len(seeds)), study.quantity.sign
    differences = sign * (resampled(*one, draws) - resampled(*two, draws))
    return sign * (ratio(*one) - ratio(*two)), interval(differences, len(one[1]))


def _table(results: Sequence[dict[str, Any]], times: int, quantity: Quantity) -> tuple[Numbers, Numbers]:
    rows = [next(row for row in item["lengths"] if row["times"] == times) for item in results]
    tables = [quantity.table(row) for row in rows]
    return np.stack([amounts for amounts, _ in tables]), tables[0][1]
