"""A finding as its card shows it: words and numbers ready for the template."""

from collections.abc import Sequence
from typing import Any

from ordinate.finding import Chart, Estimate, Finding, Picture, Table, number
from ordinate.report.heat import Scale, image, ramp
from ordinate.report.lines import spec

# estimates that are shown at once; the others open
SHOWN = 6
Cells = list[str]


def card(finding: Finding, failure: str = "") -> dict[str, Any]:
    """What the template asks for.

    Args:
        finding: the numbers.
        failure: what went wrong where nothing was found.
    """
    name = finding.question
    rows = [_estimate(one) for one in finding.estimates]
    return {
        "name": name,
        "title": finding.title,
        "status": "failed" if failure else finding.status,
        "answer": finding.answer,
        "failure": failure,
        "estimates": rows[:SHOWN],
        "more": rows[SHOWN:],
        "charts": [_chart(f"{name}-chart-{place}", one) for place, one in enumerate(finding.charts)],
        "pictures": [_picture(f"{name}-picture-{place}", one) for place, one in enumerate(finding.pictures)],
        "tables": [_table(one) for one in finding.tables],
        "method": finding.method,
        "null": finding.null,
        "caveats": finding.caveats,
        "cost": f"{finding.seconds:,.0f} s" if finding.seconds >= 10 else f"{finding.seconds:.1f} s",
        "seed": finding.seed,
    }


def _estimate(one: Estimate) -> dict[str, str]:
    value, low, high = one.written
    null = number(one.null)
    if one.null_low is not None:
        null = f"{number(one.null_low)} to {number(one.null_high)}"
    return {
        "name": one.name,
        "value": value,
        "sure": f"{low} to {high}" if low else "",
        "null": null,
        "unit": one.unit,
    }


def _chart(name: str, chart: Chart) -> dict[str, Any]:
    wide = any(line.low for line in chart.lines)
    columns = ["line", chart.x, chart.y, *(["95 % from", "to"] if wide else [])]
    rows = []
    for line in chart.lines:
        low, high = line.low or (None,) * len(line.x), line.high or (None,) * len(line.x)
        for values in zip(line.x, line.y, low, high, strict=True):
            rows.append([line.name, *(number(value) for value in (values if wide else values[:2]))])
    words = {"id": name, "title": chart.title, "caption": chart.caption}
    return {**words, "spec": spec(chart), "table": {"title": "", "caption": "", "columns": columns, "rows": rows}}


def _picture(name: str, picture: Picture) -> dict[str, Any]:
    scale = Scale.of(picture)
    panels = [
        {
            "name": panel.name,
            "note": panel.note,
            "image": image(panel.values, scale),
            "whole": panel.whole or (len(panel.values), len(panel.values[0])),
        }
        for panel in picture.panels
    ]
    words = {"id": name, "title": picture.title, "caption": picture.caption, "x": picture.x, "y": picture.y}
    words |= {"first": picture.first}
    ends = {"low": number(scale.low), "high": number(scale.high), "from": scale.low, "to": scale.high}
    return {**words, **ends, "ramp": ramp(scale), "panels": panels}


def _table(table: Table) -> dict[str, Any]:
    rows: Sequence[Cells] = [[number(cell) for cell in row] for row in table.rows]
    return {"title": table.title, "columns": list(table.columns), "rows": rows, "caption": table.caption}
