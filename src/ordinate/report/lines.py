"""The charts of a finding, as Vega-Lite specifications."""

from typing import Any

import altair as alt

from ordinate.finding import Chart
from ordinate.report.charts import COLOURS as ALL
from ordinate.report.charts import DASHES
from ordinate.report.offline import readable

GREY = "#8a93a1"
# black cannot be seen where it is dark
COLOURS = tuple(colour for colour in ALL if colour != "#000000")
# so many places across are named one by one
FEW = 12
# names longer than this stand below each other, so that a narrow screen has room for them
LONG = 24
Spec = dict[str, Any]


def spec(chart: Chart) -> Spec:
    """Lines with bands; what chance gives is grey and dashed.

    Axes and words take the colour of the text around them, in light and dark.
    """
    names = [line.name for line in chart.lines]
    places = sorted({place for line in chart.lines for place in line.x})
    x = alt.X("x:Q", title=chart.x).scale(**_scale(chart.across), nice=False)
    marks: dict[str, Any] = {"values": places} if len(places) <= FEW else {}
    if all(place == int(place) for place in places):
        marks["tickMinStep"] = 1
    x = x.axis(grid=False, labelOverlap=True, format=",.6~g", **marks)
    y = alt.Y("y:Q", title=chart.y).scale(**_scale(chart.scale)).axis(format=_format(chart))
    tips = [
        alt.Tooltip("line:N", title="what"),
        alt.Tooltip("x:Q", title=chart.x),
        *(
            alt.Tooltip(f"{name}:Q", title=title, format=".4g")
            for name, title in (("y", chart.y), ("low", "95 % from"), ("high", "to"))
        ),
    ]
    base = alt.Chart(alt.Data(values=_rows(chart))).encode(x=x, color=_colours(chart, names), tooltip=tips)
    ends = alt.Y("low:Q", title=chart.y).scale(**_scale(chart.scale)).axis(format=_format(chart))
    band = base.mark_area(opacity=0.16).encode(y=ends, y2="high:Q")
    lines = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=22))
    lines = lines.encode(y=y, strokeDash=_dashes(chart, names))
    size = {"width": "container", "height": 260, "autosize": alt.AutoSizeParams(type="fit-x", contains="padding")}
    drawn = alt.layer(band, lines).properties(**size)
    words = {"labelColor": "currentColor", "titleColor": "currentColor"}
    drawn = drawn.configure(background="transparent").configure_view(stroke=None)
    drawn = drawn.configure_axis(
        labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridColor=GREY, gridOpacity=0.25,
        domainColor=GREY, tickColor=GREY, **words
    )  # fmt: skip
    return _clean(drawn.configure_legend(labelFontSize=12, labelColor="currentColor").to_dict())


def _clean(value: Any) -> Any:
    """The same with texts that have a picture: what draws charts gives up at some characters."""
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else readable(value)


def _scale(kind: str) -> dict[str, Any]:
    return {"type": "log", "base": 2} if kind == "log" else {"zero": False}


def _format(chart: Chart) -> str:
    """How numbers of the axis upwards are written: with powers of ten where all are small."""
    most = max((abs(y) for line in chart.lines for y in line.y if y is not None), default=0.0)
    return ".1e" if most < 1e-3 or chart.scale == "log" else ",.6~g"


def _rows(chart: Chart) -> list[dict[str, Any]]:
    rows = []
    for line in chart.lines:
        low, high = line.low or line.y, line.high or line.y
        for place, x in enumerate(line.x):
            if line.y[place] is not None:
                numbers = {"y": line.y[place], "low": low[place], "high": high[place]}
                rows.append({"line": line.name, "x": x, **numbers})
    return rows


def _colours(chart: Chart, names: list[str]) -> alt.Color:
    coloured = [line.name for line in chart.lines if not line.null]
    shades = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(coloured)}
    shown = [shades.get(name, GREY) for name in names]
    return alt.Color("line:N", legend=_legend(names)).scale(domain=names, range=shown)


def _dashes(chart: Chart, names: list[str]) -> alt.StrokeDash:
    dashes = [
        [4, 3] if line.null else DASHES[place // len(COLOURS) % len(DASHES)] for place, line in enumerate(chart.lines)
    ]
    return alt.StrokeDash("line:N", legend=_legend(names)).scale(domain=names, range=dashes)


def _legend(names: list[str]) -> alt.Legend | None:
    look: dict[str, Any] = {"symbolType": "stroke", "symbolStrokeWidth": 3, "symbolOpacity": 1}
    columns = 1 if max(map(len, names)) > LONG else 2
    return alt.Legend(title=None, orient="top", columns=columns, labelLimit=320, **look) if len(names) > 1 else None
