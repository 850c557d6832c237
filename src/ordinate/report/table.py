"""The table of a report, for the page and for results.csv."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ordinate.report.read import Study
from ordinate.report.summary import Entry
from ordinate.study.state import STATES, State

MEGABYTE = 1 << 20
# the only numbers that may differ between two runs of one plan
COSTS = ("tokens_per_second", "peak_memory_mb")


@dataclass(frozen=True)
class Row:
    """One scheme or mixer.

    Args:
        label: what it is called.
        scheme: its scheme.
        mixer: its mixer.
        status: how many runs ended how.
        numbers: by column name; None where there is no number.
        entry: the same with intervals; None if no run has finished.
    """

    label: str
    scheme: str
    mixer: str
    status: str
    numbers: dict[str, float | int | None]
    entry: Entry | None


def rows(study: Study, entries: Sequence[Entry]) -> list[Row]:
    """One row for each planned scheme or mixer, the best first, those without a finished run last."""
    known = {entry.label: entry for entry in entries}
    order = [*known, *(label for label in study.compared if label not in known)]
    return [_row(study, label, known.get(label)) for label in order]


def as_csv(parts: Sequence[tuple[Mapping[str, Any], Sequence[Row]]], mixers: bool, *, costs: bool = False) -> str:
    """The tables of all cells as comma-separated values: what was measured, or what it cost.

    Args:
        parts: the values of each cell's factors, which come first, and its table; of a study without a grid, one.
        mixers: whether there is a column of mixers.
        costs: whether it is of costs, which differ from one machine and day to the next.
    """
    every = dict.fromkeys(name for _, table in parts for row in table for name in row.numbers)
    columns = [name for name in every if (name in COSTS) == costs]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*parts[0][0], *(["mixer"] if mixers else []), "scheme", "status", *columns])
    for values, table in parts:
        for row in table:
            numbers = (row.numbers.get(name) for name in columns)
            named = [row.mixer, row.scheme] if mixers else [row.label]
            plain = ("" if number is None else _plain(number) for number in numbers)
            writer.writerow([*values.values(), *named, row.status, *plain])
    return out.getvalue()


def _row(study: Study, label: str, entry: Entry | None) -> Row:
    counts: dict[State, int] = {state: study.count(label, state) for state in STATES if state != "pending"}
    counts["pending"] = study.plan["seeds"] - sum(counts.values())
    status = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    numbers: dict[str, float | int | None] = {"seeds": counts["done"]}
    if entry:
        numbers |= _quality(entry, study.quantity.column) | _means(study, label)
    return Row(label, **study.compared[label], status=status, numbers=numbers, entry=entry)


def _quality(entry: Entry, column: str) -> dict[str, float | int | None]:
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
    done = study.done(label)
    shuffled = {"shuffle_2": 1, "shuffle_all": -1} if "order" in done[0] else {}
    return {
        **{name: _mean(_rise(item, place) for item in done) for name, place in shuffled.items()},
        **{name: _mean(item["lengths"][0].get(name) for item in done) for name, _, _ in study.quantity.also},
        **({"learning_rate": done[0]["tuning"]["rate"]} if "tuning" in done[0] else {}),
        **({"steps": done[0]["step"]} if study.plan.get("budgets") else {}),
        "parameters_trained": done[0]["parameters"]["trained"],
        "parameters_total": done[0]["parameters"]["total"],
        "tokens_per_second": _mean(item["cost"].get("tokens_per_second") for item in done),
        "peak_memory_mb": _mean(
            memory / MEGABYTE if (memory := item["cost"].get("peak_memory_bytes")) else None for item in done
        ),
    }


def _rise(result: dict[str, Any], place: int) -> float | None:
    order = result["order"]
    return order[place]["nats_per_token"] - order[0]["nats_per_token"] if len(order) > 1 else None


def _mean(numbers: Any) -> float | None:
    known = [number for number in numbers if number is not None]
    return fmean(known) if known else None


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.6g}"
