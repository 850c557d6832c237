"""Each scheme or mixer in numbers, with intervals, and set against the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ordinate.report.quantity import Quantity
from ordinate.report.read import Study
from ordinate.study.comparison import Comparison, Table, compare_all
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
    return summarise_all([study])[0][0]


def summarise_all(
    studies: Sequence[Study], means: Sequence[Mapping[str, Table]] = (), kinds: Sequence[Quantity] = ()
) -> tuple[list[list[Entry]], list[list[Entry]]]:
    """The same for every cell of a grid, and for means over cells; all comparisons are corrected together.

    Args:
        studies: the cells.
        means: for each mean, what is compared by label.
        kinds: what each of them is compared by.
    """
    near, far = [study_tables(study, longest=False) for study in studies], [study_tables(study) for study in studies]
    compared = compare_all([*near, *means])
    further = compare_all(far)
    cells = [
        _ranked([_entry(label, study.done(label), study.quantity) for label in tables], study.quantity, *found)
        for study, tables, *found in zip(studies, near, compared, further, strict=False)
    ]
    averages = [
        _ranked([_mean(label, table, kind) for label, table in tables.items()], kind, found, {})
        for tables, kind, found in zip(means, kinds, compared[len(near) :], strict=True)
    ]
    return cells, averages


def study_tables(study: Study, *, longest: bool = True) -> dict[str, Table]:
    """What was measured of each, at the longest length that any was read at, or at the trained one."""
    done = {label: study.done(label) for label in study.compared}
    times = {
        row["times"]
        for results in done.values()
        for row in (results[0]["lengths"] if results else ())
        if study.quantity.measured(row)
    }
    if not times:
        return {}
    wanted = max(times) if longest else min(times)
    return {
        label: _table(results, wanted)
        for label, found in done.items()
        # some may serve the trained length only
        if (results := [run for run in found if _measured(run, wanted, study.quantity)])
    }


def _ranked(
    entries: list[Entry],
    kind: Quantity,
    near: Mapping[tuple[str, str], Comparison],
    far: Mapping[tuple[str, str], Comparison],
) -> list[Entry]:
    """The best first, each set against the best."""
    entries.sort(key=lambda entry: kind.sign * entry.trained.value)
    if not entries:
        return []
    longest = max(times for entry in entries for times in entry.levels)
    able = [entry for entry in entries if longest in entry.levels]
    furthest = min(able, key=lambda entry: kind.sign * entry.longest.value).label
    return [
        replace(
            entry,
            behind=_worse(near.get((entry.label, entries[0].label)), kind),
            behind_longest=_worse(far.get((entry.label, furthest)), kind),
        )
        for entry in entries
    ]


def _worse(found: Comparison | None, kind: Quantity) -> Comparison | None:
    return found if found is None or kind.sign > 0 else found.turned()


def _mean(label: str, table: Table, kind: Quantity) -> Entry:
    values = resampled(table.amounts, table.sizes, Draws.of(len(table.sizes), len(table.seeds)))
    value, bounds = ratio(table.amounts, table.sizes), kind.interval(values, table.amounts, table.sizes)
    return Entry(label, len(table.seeds), {1: Level(1, 0, value, bounds, 0.0, None)})


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
