"""The results table, for the HTML page, results.csv and costs.csv."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ordinate.core.table_export import inert_cell
from ordinate.report.read import Study
from ordinate.report.summary import ArmSummary
from ordinate.study.run import STATES, State

MEGABYTE = 1 << 20
# the only columns that may differ when the same plan is run again; they go to costs.csv
COST_COLUMNS = ("tokens_per_second", "peak_memory_mb")


@dataclass(frozen=True)
class TableRow:
    """One row: a scheme or mixer.

    Args:
        label: its label in the plan.
        scheme: its scheme.
        mixer: its mixer.
        status: number of runs by status, as text.
        numbers: values by column name; None where there is none.
        entry: the summary statistics; None if no run has finished.
    """

    label: str
    scheme: str
    mixer: str
    status: str
    numbers: dict[str, float | int | None]
    entry: ArmSummary | None


def table_rows(study: Study, entries: Sequence[ArmSummary]) -> list[TableRow]:
    """Return a row for each planned scheme or mixer, the best first, those without a finished run last."""
    known = {entry.label: entry for entry in entries}
    order = [*known, *(label for label in study.arms if label not in known)]
    return [_row(study, label, known.get(label)) for label in order]


def to_csv(
    parts: Sequence[tuple[Mapping[str, Any], Sequence[TableRow]]], mixers: bool, *, costs: bool = False
) -> str:
    """Write the tables of all cells as comma-separated values: the results, or the costs.

    Args:
        parts: for each cell the values of its factors, which become the first columns, and its table; a study
            without a grid has one part.
        mixers: add a column for the mixer.
        costs: write the columns of costs, which vary between machines and runs, instead of the results.
    """
    every = dict.fromkeys(name for _, table in parts for row in table for name in row.numbers)
    columns = [name for name in every if (name in COST_COLUMNS) == costs]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*parts[0][0], *(["mixer"] if mixers else []), "scheme", "status", *columns])
    for values, table in parts:
        for row in table:
            numbers = (row.numbers.get(name) for name in columns)
            named = [row.mixer, row.scheme] if mixers else [row.label]
            plain = ("" if number is None else _plain(number) for number in numbers)
            writer.writerow([*map(inert_cell, [*values.values(), *named]), row.status, *plain])
    return out.getvalue()


def _row(study: Study, label: str, entry: ArmSummary | None) -> TableRow:
    counts: dict[State, int] = {state: study.count(label, state) for state in STATES if state != "pending"}
    counts["pending"] = study.seeds_of(label) - sum(counts.values())
    status = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    numbers: dict[str, float | int | None] = {"seeds": counts["done"]}
    if entry:
        numbers |= _quality(entry, study.metric.csv_prefix) | _means(study, label)
    return TableRow(label, **study.arms[label], status=status, numbers=numbers, entry=entry)


def _quality(entry: ArmSummary, column: str) -> dict[str, float | int | None]:
    numbers: dict[str, float | int | None] = {}
    for level in entry.levels.values():
        numbers |= _bounds(f"{column}_{level.times}x", level.value, level.interval)
    if entry.behind is None:
        return numbers | _bounds("behind_best", None, None)
    found = entry.behind
    return numbers | {
        **_bounds("behind_best", found.difference, found.interval),
        "behind_best_p": found.p,
        "behind_best_p_corrected": found.adjusted,
        "behind_best_effect": found.effect,
        "seeds_needed": found.seeds_needed,
    }


def _bounds(name: str, value: float | None, bounds: tuple[float, float] | None) -> dict[str, float | int | None]:
    low, high = bounds or (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _means(study: Study, label: str) -> dict[str, float | int | None]:
    done = study.finished(label)
    # indices into `order`: the first is unshuffled, then window 2 (pairs), the last is all tokens
    shuffled = {"shuffle_2": 1, "shuffle_all": -1} if "order" in done[0] else {}
    return {
        **{name: _mean(_loss_rise(item, index) for item in done) for name, index in shuffled.items()},
        **{name: _mean(item["lengths"][0].get(name) for item in done) for name, _, _ in study.metric.extra_columns},
        **({"learning_rate": done[0]["tuning"]["rate"]} if "tuning" in done[0] else {}),
        **({"steps": done[0]["step"]} if study.plan.get("budgets") else {}),
        "parameters_trained": done[0]["parameters"]["trained"],
        "parameters_total": done[0]["parameters"]["total"],
        "tokens_per_second": _mean(item["cost"].get("tokens_per_second") for item in done),
        "peak_memory_mb": _mean(
            memory / MEGABYTE if (memory := item["cost"].get("peak_memory_bytes")) else None for item in done
        ),
    }


def _loss_rise(result: dict[str, Any], index: int) -> float | None:
    order = result["order"]
    return order[index]["nats_per_token"] - order[0]["nats_per_token"] if len(order) > 1 else None


def _mean(numbers: Any) -> float | None:
    known = [number for number in numbers if number is not None]
    return fmean(known) if known else None


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.6g}"
