"""Cells of a grid as small pictures: a row for each scheme or mixer, with its interval."""

from collections.abc import Sequence
from typing import Any

from ordinate.report.margins import Cell
from ordinate.report.summary import Entry, Level
from ordinate.report.verdict import leader
from ordinate.study.run import described, digest

# of a picture, in its own units; names stand left of EDGE in a column of the page
WIDE, ROW, EDGE = 200.0, 22.0, 6.0


def forests(cells: Sequence[Cell], ranked: Sequence[Sequence[Entry]]) -> list[dict[str, Any]]:
    """A picture for each cell; those of the same data have one scale, so that they can be read across."""
    scales: dict[str, list[float]] = {}
    for (_, study), entries in zip(cells, ranked, strict=True):
        ends = scales.setdefault(digest([study.learned, study.plan["task"]]), [])
        ends += [end for entry in entries for end in _ends(entry.trained)]
    return [
        _forest(cell, entries, scales[digest([cell[1].learned, cell[1].plan["task"]])])
        for cell, entries in zip(cells, ranked, strict=True)
    ]


def _forest(cell: Cell, entries: Sequence[Entry], ends: Sequence[float]) -> dict[str, Any]:
    (values, study), kind = cell, cell[1].quantity
    known, low, high = {entry.label: entry for entry in entries}, min(ends, default=0.0), max(ends, default=1.0)
    first = leader(entries)
    rows: list[dict[str, Any]] = []
    for place, label in enumerate(study.compared):
        entry, y = known.get(label), ROW * (place + 0.5)
        if entry is None:
            rows.append({"label": label, "y": f"{y:.1f}", "mark": None, "state": "missing"})
            continue
        behind = entry.behind
        state = "first" if entry is first else "best" if behind is None else "behind" if behind.sure else "open"
        left, right = _ends(entry.trained)
        mark = [f"{_across(number, low, high):.1f}" for number in (left, entry.trained.value, right)]
        said = kind.said(entry.trained.value, entry.trained.interval)
        rows.append({"label": label, "y": f"{y:.1f}", "mark": mark, "state": state, "said": f"{label}: {said}"})
    return {
        "title": described(values),
        "rows": rows,
        "high": ROW * len(study.compared),
        "low": kind.text(low),
        "top": kind.text(high),
        "name": kind.name,
    }


def _ends(level: Level) -> tuple[float, float]:
    return level.interval or (level.value, level.value)


def _across(number: float, low: float, high: float) -> float:
    return EDGE + (WIDE - 2 * EDGE) * ((number - low) / (high - low) if high > low else 0.5)
