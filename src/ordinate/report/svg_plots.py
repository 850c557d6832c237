"""Coordinates of the small SVG plots that the templates draw: forest plots of a grid, and accuracy by slice."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ordinate.evaluation.result import LengthResult
from ordinate.report.decision import leader
from ordinate.report.marginal_means import Cell
from ordinate.report.read import Study
from ordinate.report.summary import ArmSummary
from ordinate.study.run import describe_cell, digest

# in SVG user units: width of a plot, height of a row of a forest plot, height of a plot of slices
_WIDTH, _ROW, _HEIGHT = 200.0, 22.0, 100.0
# margins left and right of the interval in a forest plot, and around a plot of slices
_FOREST_MARGIN, _SLICE_MARGIN = 6.0, 4.0


def forest_plots(cells: Sequence[Cell], ranked: Sequence[Sequence[ArmSummary]]) -> list[dict[str, Any]]:
    """A forest plot for each cell of a grid; cells with the same data and task share one scale.

    Args:
        cells: the cells.
        ranked: the entries of each cell, the best first.
    """
    scales: dict[str, list[float]] = {}
    for (_, study), entries in zip(cells, ranked, strict=True):
        ends = scales.setdefault(digest([study.training_data, study.plan["task"]]), [])
        ends += [end for entry in entries for end in _ends(entry.trained)]
    return [
        _forest(cell, entries, scales[digest([cell[1].training_data, cell[1].plan["task"]])])
        for cell, entries in zip(cells, ranked, strict=True)
    ]


def _forest(cell: Cell, entries: Sequence[ArmSummary], ends: Sequence[float]) -> dict[str, Any]:
    (values, study), kind = cell, cell[1].metric
    known, low, high = {entry.label: entry for entry in entries}, min(ends, default=0.0), max(ends, default=1.0)
    first = leader(entries)
    rows: list[dict[str, Any]] = []
    for index, label in enumerate(study.arms):
        entry, y = known.get(label), _ROW * (index + 0.5)
        if entry is None:
            rows.append({"label": label, "y": f"{y:.1f}", "mark": None, "state": "missing"})
            continue
        behind = entry.behind
        worse = behind is not None and behind.significantly_above
        state = "first" if entry is first else "best" if behind is None else "behind" if worse else "open"
        left, right = _ends(entry.trained)
        mark = [f"{_forest_x(number, low, high):.1f}" for number in (left, entry.trained.value, right)]
        said = kind.sentence(entry.trained.value, entry.trained.interval)
        rows.append({"label": label, "y": f"{y:.1f}", "mark": mark, "state": state, "said": f"{label}: {said}"})
    return {
        "title": describe_cell(values),
        "rows": rows,
        "high": _ROW * len(study.arms),
        "low": kind.format_value(low),
        "top": kind.format_value(high),
        "name": kind.name,
    }


def _ends(level: LengthResult) -> tuple[float, float]:
    return level.interval or (level.value, level.value)


def _forest_x(number: float, low: float, high: float) -> float:
    return _FOREST_MARGIN + (_WIDTH - 2 * _FOREST_MARGIN) * _share(number, low, high)


def slice_plots(study: Study, entries: Sequence[ArmSummary]) -> list[dict[str, Any]]:
    """Small multiples of accuracy: for each kind of slice, a plot for each scheme or mixer, the best first."""
    rows = {entry.label: [row for run in study.finished(entry.label) for row in _rows(run)] for entry in entries}
    names = dict.fromkeys(name for found in rows.values() for row in found for name in row["slices"])
    classes = study.training_data.get("classes")
    name_of = str if classes is None else classes.__getitem__
    words = {"extent": study.metric.extent, "units": study.metric.units, "bars": classes is not None}
    return [_slices(name, rows, study.training_data.get("chance"), name_of) | words for name in names]


def _rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for row in result["lengths"] if row.get("slices")]


def _slices(
    name: str, rows: Mapping[str, Sequence[Mapping[str, Any]]], chance: float | None, name_of: Callable[[int], str]
) -> dict[str, Any]:
    parts = [part for found in rows.values() for row in found for part in row["slices"].get(name, [])]
    low, high = min(part["from"] for part in parts), max(part["to"] for part in parts)
    return {
        "name": name,
        "low": name_of(low),
        "high": name_of(high),
        "chance": None if chance is None else _slice_y(chance),
        "panels": [
            {
                "label": label,
                # longer lengths first, so that the trained length is drawn on top
                "lines": [
                    _line(name, row, (low, high), name_of) for row in sorted(found, key=lambda row: -row["times"])
                ],
            }
            for label, found in rows.items()
        ],
    }


def _line(name: str, row: Mapping[str, Any], ends: tuple[int, int], name_of: Callable[[int], str]) -> dict[str, Any]:
    """The points, the confidence band and the interval of each point, for one length."""
    parts = row["slices"].get(name, [])
    width = _WIDTH - 2 * _SLICE_MARGIN
    xs = [_SLICE_MARGIN + width * _share((part["from"] + part["to"]) / 2, *ends) for part in parts]
    points = [(x, _slice_y(part["accuracy"])) for x, part in zip(xs, parts, strict=True)]
    above = [(x, _slice_y(part["interval"][1])) for x, part in zip(xs, parts, strict=True)]
    below = [(x, _slice_y(part["interval"][0])) for x, part in zip(xs, parts, strict=True)]
    return {
        "first": row["times"] == 1,
        "line": _points(points),
        "band": _points([*above, *reversed(below)]),
        "dots": [
            {
                "x": f"{x:.1f}",
                "y": f"{y:.1f}",
                "low": f"{low:.1f}",
                "high": f"{high:.1f}",
                "said": _tooltip(name, part, row["times"], name_of),
            }
            for (x, y), (_, low), (_, high), part in zip(points, below, above, parts, strict=True)
        ],
    }


def _tooltip(name: str, part: Mapping[str, Any], times: int, name_of: Callable[[int], str]) -> str:
    first, last = name_of(part["from"]), name_of(part["to"])
    extent = first if first == last else f"{first} to {last}"
    low, high = part["interval"]
    return f"{name} {extent}, {times}x: {100 * part['accuracy']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _share(number: float, low: float, high: float) -> float:
    return (number - low) / (high - low) if high > low else 0.5


def _slice_y(share: float) -> float:
    return _SLICE_MARGIN + (_HEIGHT - 2 * _SLICE_MARGIN) * (1 - share)


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
