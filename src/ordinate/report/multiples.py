"""Right answers by slice as small pictures, one for each scheme or mixer: numbers for the page to draw."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ordinate.report.read import Study
from ordinate.report.summary import Entry

WIDE, HIGH, EDGE = 200.0, 100.0, 4.0


def multiples(study: Study, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """For each kind of slice, a picture for each scheme or mixer, the best first."""
    rows = {entry.label: [row for run in study.done(entry.label) for row in _rows(run)] for entry in entries}
    names = dict.fromkeys(name for found in rows.values() for row in found for name in row["slices"])
    classes = study.learned.get("classes")
    name_of = str if classes is None else classes.__getitem__
    words = {"extent": study.quantity.extent, "units": study.quantity.units, "bars": classes is not None}
    return [_kind(name, rows, study.learned.get("chance"), name_of) | words for name in names]


def _rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for row in result["lengths"] if row.get("slices")]


def _kind(
    name: str, rows: Mapping[str, Sequence[Mapping[str, Any]]], chance: float | None, name_of: Callable[[int], str]
) -> dict[str, Any]:
    parts = [part for found in rows.values() for row in found for part in row["slices"].get(name, [])]
    low, high = min(part["from"] for part in parts), max(part["to"] for part in parts)
    return {
        "name": name,
        "low": name_of(low),
        "high": name_of(high),
        "chance": None if chance is None else _up(chance),
        "panels": [
            {
                "label": label,
                "lines": [
                    _line(name, row, (low, high), name_of) for row in sorted(found, key=lambda row: -row["times"])
                ],
            }
            for label, found in rows.items()
        ],
    }


def _line(name: str, row: Mapping[str, Any], ends: tuple[int, int], name_of: Callable[[int], str]) -> dict[str, Any]:
    """A line and the band around it, and the ends of each interval; further than trained has another colour."""
    parts = row["slices"].get(name, [])
    across = [EDGE + (WIDE - 2 * EDGE) * _share((part["from"] + part["to"]) / 2, *ends) for part in parts]
    points = [(x, _up(part["accuracy"])) for x, part in zip(across, parts, strict=True)]
    above = [(x, _up(part["interval"][1])) for x, part in zip(across, parts, strict=True)]
    below = [(x, _up(part["interval"][0])) for x, part in zip(across, parts, strict=True)]
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
                "said": _said(name, part, row["times"], name_of),
            }
            for (x, y), (_, low), (_, high), part in zip(points, below, above, parts, strict=True)
        ],
    }


def _said(name: str, part: Mapping[str, Any], times: int, name_of: Callable[[int], str]) -> str:
    first, last = name_of(part["from"]), name_of(part["to"])
    place = first if first == last else f"{first} to {last}"
    low, high = part["interval"]
    return f"{name} {place}, {times}x: {100 * part['accuracy']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _share(number: float, low: float, high: float) -> float:
    return (number - low) / (high - low) if high > low else 0.5


def _up(share: float) -> float:
    return EDGE + (HIGH - 2 * EDGE) * (1 - share)


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
