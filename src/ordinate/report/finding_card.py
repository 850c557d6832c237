"""Template data of a finding: formatted numbers, chart specifications, images and tables."""

from collections.abc import Sequence
from typing import Any

from ordinate.core.finding import Chart, Estimate, Finding, HeatmapGrid, Table, format_number
from ordinate.report.charts import finding_chart
from ordinate.report.heatmap import ColourScale, colour_bar, heatmap_image

# estimates shown directly; the others are collapsed
MAX_ESTIMATES_SHOWN = 6
Cells = list[str]


def card_context(finding: Finding, failure: str = "") -> dict[str, Any]:
    """Return the variables of card.html.jinja.

    Args:
        finding: the finding.
        failure: the traceback if the probe failed.
    """
    name = finding.question
    rows = [_estimate(one) for one in finding.estimates]
    return {
        "name": name,
        "title": finding.title,
        "status": "failed" if failure else finding.status,
        "verdict": finding.verdict,
        "answer": finding.answer,
        "failure": failure,
        "estimates": rows[:MAX_ESTIMATES_SHOWN],
        "more": rows[MAX_ESTIMATES_SHOWN:],
        "charts": [_chart(f"{name}-chart-{index}", one) for index, one in enumerate(finding.charts)],
        "pictures": [_picture(f"{name}-picture-{index}", one) for index, one in enumerate(finding.pictures)],
        "tables": [_table(one) for one in finding.tables],
        "method": finding.method,
        "null": finding.null,
        "caveats": finding.caveats,
        "cost": f"{finding.seconds:,.0f} s" if finding.seconds >= 10 else f"{finding.seconds:.1f} s",
        "seed": finding.seed,
    }


def _estimate(one: Estimate) -> dict[str, str]:
    value, low, high = one.formatted
    null = format_number(one.null)
    if one.null_low is not None:
        null = f"{format_number(one.null_low)} to {format_number(one.null_high)}"
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
            rows.append([line.name, *(format_number(value) for value in (values if wide else values[:2]))])
    words = {"id": name, "title": chart.title, "caption": chart.caption}
    return {
        **words,
        "spec": finding_chart(chart),
        "table": {"title": "", "caption": "", "columns": columns, "rows": rows},
    }


def _picture(name: str, picture: HeatmapGrid) -> dict[str, Any]:
    scale = ColourScale.of(picture)
    panels = [
        {
            "name": panel.name,
            "note": panel.note,
            "image": heatmap_image(panel.values, scale),
            "whole": panel.whole or (len(panel.values), len(panel.values[0])),
        }
        for panel in picture.panels
    ]
    words = {"id": name, "title": picture.title, "caption": picture.caption, "x": picture.x, "y": picture.y}
    words |= {"first": picture.first}
    ends = {"low": format_number(scale.low), "high": format_number(scale.high), "from": scale.low, "to": scale.high}
    return {**words, **ends, "ramp": colour_bar(scale), "panels": panels}


def _table(table: Table) -> dict[str, Any]:
    rows: Sequence[Cells] = [[format_number(cell) for cell in row] for row in table.rows]
    return {"title": table.title, "columns": list(table.columns), "rows": rows, "caption": table.caption}
