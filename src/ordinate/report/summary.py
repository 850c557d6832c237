"""Summary statistics of each scheme or mixer: values, intervals, and paired comparisons with the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ordinate.evaluation.comparison import Comparison, Measurements, compare_all
from ordinate.evaluation.result import LengthResult, LengthTable, summarise_lengths
from ordinate.report.metric import Metric
from ordinate.report.read import Study


@dataclass(frozen=True)
class ArmSummary:
    """Summary of a scheme or mixer.

    Args:
        label: as written in the plan.
        seeds: number of finished runs.
        levels: by multiple of the trained length.
        behind: paired comparison with the best at the trained length, on the same documents and seeds (positive
            is worse; it may be negative where the best has further seeds); None for the best, and if the two share
            no seed.
        behind_longest: the same at the longest length, with the best there.
    """

    label: str
    seeds: int
    levels: dict[int, LengthResult]
    behind: Comparison | None = None
    behind_longest: Comparison | None = None

    @property
    def trained(self) -> LengthResult:
        """The value at the trained length."""
        return self.levels[min(self.levels)]

    @property
    def longest(self) -> LengthResult:
        """The value at the longest evaluated length."""
        return self.levels[max(self.levels)]


def summarise(study: Study) -> list[ArmSummary]:
    """Summarise every scheme or mixer with a finished run, the best at the trained length first."""
    return summarise_all([study])[0][0]


def summarise_all(
    studies: Sequence[Study], means: Sequence[Mapping[str, Measurements]] = (), kinds: Sequence[Metric] = ()
) -> tuple[list[list[ArmSummary]], list[list[ArmSummary]]]:
    """Summarise every cell of a grid and the means over cells, with one multiple-testing correction for all.

    Args:
        studies: the cells.
        means: for each mean over cells, the pooled table of each label.
        kinds: the metric of each mean.

    Returns:
        The entries of each cell, and the entries of each mean.
    """
    near, far = [study_tables(study, longest=False) for study in studies], [study_tables(study) for study in studies]
    compared = compare_all([*near, *means])
    further = compare_all(far)
    cells = [
        _ranked([_entry(label, study.finished(label), study.metric) for label in tables], study.metric, *found)
        for study, tables, *found in zip(studies, near, compared, further, strict=False)
    ]
    averages = [
        _ranked([_mean(label, table, kind) for label, table in tables.items()], kind, found, {})
        for tables, kind, found in zip(means, kinds, compared[len(near) :], strict=True)
    ]
    return cells, averages


def study_tables(study: Study, *, longest: bool = True) -> dict[str, Measurements]:
    """Values of each label by seed and unit, at the longest length that any was evaluated at, or the trained one."""
    done = {label: study.finished(label) for label in study.arms}
    times = {
        row["times"]
        for results in done.values()
        for row in (results[0]["lengths"] if results else ())
        if study.metric.has_value(row)
    }
    if not times:
        return {}
    wanted = max(times) if longest else min(times)
    return {
        label: _table(results, wanted)
        for label, found in done.items()
        # some schemes (learned positions) have values at the trained length only
        if (results := [run for run in found if _measured(run, wanted, study.metric)])
    }


def _ranked(
    entries: list[ArmSummary],
    kind: Metric,
    near: Mapping[tuple[str, str], Comparison],
    far: Mapping[tuple[str, str], Comparison],
) -> list[ArmSummary]:
    """Sort entries, the best first, and attach the comparison of each with the best."""
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


def _worse(found: Comparison | None, kind: Metric) -> Comparison | None:
    # positive differences mean worse for every metric
    return found if found is None or kind.sign > 0 else found.reversed()


def _mean(label: str, table: Measurements, kind: Metric) -> ArmSummary:
    quantity = kind.quantity
    value, bounds = quantity.value(table.amounts, table.sizes), quantity.interval(table.amounts, table.sizes)
    return ArmSummary(label, len(table.seeds), {1: LengthResult(1, 0, value, bounds, 0.0, None)})


def _entry(label: str, results: Sequence[dict[str, Any]], metric: Metric) -> ArmSummary:
    multiples = [row["times"] for row in results[0]["lengths"] if metric.has_value(row)]
    tables = {times: _table(results, times) for times in multiples}
    lengths = {row["times"]: row["length"] for row in results[0]["lengths"]}
    found = summarise_lengths(
        metric.quantity,
        [LengthTable(times, lengths[times], table.amounts, table.sizes) for times, table in tables.items()],
    )
    levels = {level.times: level for level in found}
    return ArmSummary(label, len(results), levels)


def _measured(result: dict[str, Any], times: int, metric: Metric) -> bool:
    return any(row["times"] == times and metric.has_value(row) for row in result["lengths"])


def _table(results: Sequence[dict[str, Any]], times: int) -> Measurements:
    rows = [next(row for row in item["lengths"] if row["times"] == times) for item in results]
    tables = [row["table"] for row in rows]
    seeds = tuple(item["run"]["seed"] for item in results)
    return Measurements(seeds, np.stack([amounts for amounts, _ in tables]), tables[0][1])
