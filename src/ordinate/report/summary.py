"""Each scheme or mixer in numbers, with intervals, and set against the best."""

from collections.abc import Sequence
from dataclasses import dataclass
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
    if len(entries) < 2:
        return entries
    best = entries[0]
    return [best, *(_behind(entry, best, runs, quantity) for entry in entries[1:])]


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


def _behind(entry: Entry, best: Entry, runs: dict[str, list[dict[str, Any]]], quantity: Quantity) -> Entry:
    shared = {item["run"]["seed"] for item in runs[entry.label]} & {item["run"]["seed"] for item in runs[best.label]}
    if not shared:
        return entry
    pair = [
        _table([item for item in runs[label] if item["run"]["seed"] in shared], entry.trained.times, quantity)
        for label in (entry.label, best.label)
    ]
    documents = len(pair[0][1])
    draws = Draws.of(documents, len(shared))
    difference = quantity.sign * (resampled(*pair[0], draws) - resampled(*pair[1], draws))
    value = quantity.sign * (ratio(*pair[0]) - ratio(*pair[1]))
    return Entry(entry.label, entry.seeds, entry.levels, value, interval(difference, documents))


def _table(results: Sequence[dict[str, Any]], times: int, quantity: Quantity) -> tuple[Numbers, Numbers]:
    rows = [next(row for row in item["lengths"] if row["times"] == times) for item in results]
    tables = [quantity.table(row) for row in rows]
    return np.stack([amounts for amounts, _ in tables]), tables[0][1]
