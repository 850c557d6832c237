"""Vega-Lite charts: the curves of a study, the line charts of a finding, and a cross-attention map."""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

import altair as alt

from ordinate.core.finding import Chart
from ordinate.report.html import printable
from ordinate.report.read import MAX_ARMS_DRAWN, Study
from ordinate.report.summary import ArmSummary

# each has a contrast of 3:1 at least with a white and with a dark page; lines differ by dashes too
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c46597", "#a87800", "#7a6bd0", "#6b7280", "#2f8fa8")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
_GREY = "#8a93a1"
# a piece of the line itself in the legend, so that its dashes are seen
LINE_SYMBOLS = {"symbolType": "stroke", "symbolStrokeWidth": 3, "symbolSize": 300}
# up to this many x values each get a tick of their own
_MAX_TICKS = 12
# with a longer name in it, the legend has one column, so that it fits on a narrow screen
_MAX_NAME = 24
# pixels of one cell of the attention map, and of its longest side
_CELL, _SIDE = 26, 640
Row = dict[str, Any]
Spec = dict[str, Any]


class StudyCharts:
    """The charts of a study, with one colour for each scheme or mixer.

    At most `MAX_ARMS_DRAWN` of them, the best, are drawn, and of each as many seeds as keep the lines
    distinguishable.

    Args:
        study: the results.
        entries: their summaries, the best first.
    """

    def __init__(self, study: Study, entries: Sequence[ArmSummary]) -> None:
        self.study, self.entries, self.noun = study, entries[:MAX_ARMS_DRAWN], study.noun
        drawn = {entry.label for entry in self.entries}
        self.labels = [label for label in study.arms if label in drawn]

    def training(self) -> Spec:
        """Training loss by step."""
        rows = self._curves("step", lambda run: (run["training"]["steps"], run["training"]["loss"]))
        x = alt.X("step:Q", title="step").axis(grid=False, tickMinStep=1)
        return self._line_chart(rows, x, f"loss [{self.study.metric.loss}]", named="step")

    def lengths(self) -> Spec:
        """The metric by evaluation length, with its interval."""
        rows: list[Row] = [
            {
                self.noun: entry.label,
                "times": level.times,
                "across": level.times * self._dodge(entry.label),
                "value": level.value,
                "low": level.interval[0] if level.interval else level.value,
                "high": level.interval[1] if level.interval else level.value,
            }
            for entry in self.entries
            for level in entry.levels.values()
        ]
        base = self._base(rows, **LINE_SYMBOLS)
        x = alt.X("across:Q", title=f"times the trained {self.study.metric.extent}").scale(type="log", base=2)
        x = x.axis(values=sorted({row["times"] for row in rows}), format="d", grid=False)
        y = alt.Y("value:Q", title=self.study.metric.name).scale(zero=False)
        tips = [
            f"{self.noun}:N",
            "times:Q",
            *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("value", "low", "high")),
        ]
        lines = base.mark_line(point=True).encode(x=x, y=y, strokeDash=self._dashed(), tooltip=tips)
        bars = base.mark_rule(strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q", tooltip=tips)
        return self._full_width(alt.layer(bars, lines))

    def positions(self) -> Spec:
        """Loss by position in the longest evaluation windows; a dashed line marks the trained length."""
        rows = self._curves(
            "position", lambda run: (run["positions"]["position"], run["positions"]["nats_per_token"])
        )
        length = next(run["positions"]["trained_length"] for label in self.labels for run in self._runs(label))
        mark = alt.Chart(alt.Data(values=[{"position": length, "what": "trained length"}]))
        rule = mark.mark_rule(strokeDash=[4, 4], color=_GREY).encode(x="position:Q", tooltip=["what:N", "position:Q"])
        x = alt.X("position:Q", title="position [tokens]").axis(grid=False)
        return self._line_chart(rows, x, "loss [nats a token]", rule, named="position")

    def order(self) -> Spec:
        """Loss when tokens are shuffled within windows, by window size."""
        rows = self._curves(
            "window", lambda run: zip(*((row["window"], row["nats_per_token"]) for row in run["order"]), strict=True)
        )
        x = alt.X("window:Q", title="shuffling window [tokens]").scale(type="log", base=2)
        x = x.axis(values=sorted({row["window"] for row in rows}), format="d", grid=False)
        return self._line_chart(rows, x, f"loss [{self.study.metric.loss}]", named="window", points=True)

    def crossing(self) -> Spec:
        """Cross-attention weights of the best scheme or mixer on one held-out pair."""
        found = self.study.finished(self.entries[0].label)[0]["crossing"]
        return self._styled(cross_attention_map(found["source"], found["target"], found["weights"]))

    def cost(self) -> Spec:
        """The metric by training speed."""
        kind = self.study.metric
        rows = [
            {self.noun: label, "speed": fmean(speeds), "value": self._value(label)}
            for label in self.labels
            if (speeds := [s for run in self._runs(label) if (s := run["cost"].get("tokens_per_second"))])
        ]
        x = alt.X("speed:Q", title=f"training speed [{kind.speed} a second]").scale(zero=False, padding=24)
        x = x.axis(labelOverlap=True)
        y = alt.Y("value:Q", title=kind.name).scale(zero=False, padding=16)
        base = self._base(rows)
        points = base.mark_point(size=90, filled=True).encode(x=x, y=y, tooltip=self._tooltip("speed", "value"))
        # in the colour of the page's text: that of a scheme is too dark for small letters on a dark page
        ink = {"text": f"{self.noun}:N", "color": alt.value("currentColor")}
        names = base.mark_text(align="left", dx=9, fontSize=12).encode(x=x, y=y, **ink)
        return self._full_width(alt.layer(points, names))

    def _runs(self, label: str) -> list[Row]:
        return self.study.finished(label)[: self.study.seeds_drawn]

    def _curves(self, x: str, read: Callable[[Row], Iterable[Sequence[float]]]) -> list[Row]:
        """Return the mean over seeds by x, with the lowest and the highest of them."""
        rows = []
        for label in self.labels:
            found: dict[float, list[float]] = {}
            for run in self._runs(label):
                for place, value in zip(*read(run), strict=True):
                    found.setdefault(place, []).append(value)
            rows += [
                {self.noun: label, x: place, "value": fmean(values), "low": min(values), "high": max(values)}
                for place, values in found.items()
            ]
        return rows

    @property
    def left_out(self) -> str:
        """A sentence on which runs are drawn; empty if all are."""
        every, seeds = len(self.study.arms), max(map(self.study.seeds_of, self.labels), default=0)
        best = f"the {len(self.labels)} best of {every}" if len(self.labels) == MAX_ARMS_DRAWN < every else ""
        first = f"the first {self.study.seeds_drawn} of {seeds} seeds" if self.study.seeds_drawn < seeds else ""
        return f" Drawn: {' and '.join(filter(None, (best, first)))}." if best or first else ""

    def _dodge(self, label: str) -> float:
        # a small horizontal shift, so that intervals do not hide each other
        return 2 ** (0.03 * (self.labels.index(label) - (len(self.labels) - 1) / 2))

    def _value(self, label: str) -> float:
        return next(entry.trained.value for entry in self.entries if entry.label == label)

    def _tooltip(self, x: str, y: str) -> list[Any]:
        return [f"{self.noun}:N", f"{x}:Q", alt.Tooltip(f"{y}:Q", format=".3f")]

    def _line_chart(
        self, rows: list[Row], x: alt.X, title: str, *more: alt.Chart, named: str, points: bool = False
    ) -> Spec:
        """Lines through the means over seeds; a band from the lowest to the highest seed, if there are several."""
        y = alt.Y("value:Q", title=title).scale(zero=False)
        base = self._base(rows, **LINE_SYMBOLS)
        lines = base.mark_line(strokeWidth=2, interpolate="linear", point=points)
        layers = [lines.encode(x=x, y=y, strokeDash=self._dashed(), tooltip=self._tooltip(named, "value"))]
        if any(row["low"] < row["high"] for row in rows):
            ends = alt.Y("low:Q", title=title).scale(zero=False)
            layers.insert(0, base.mark_area(fillOpacity=0.16, strokeOpacity=0).encode(x=x, y=ends, y2="high:Q"))
        return self._full_width(alt.layer(*layers, *more))

    def _base(self, rows: list[Row], **legend: Any) -> alt.Chart:
        """Data and colours of a chart; a click on a name in the legend dims the others."""
        chosen = alt.selection_point(fields=[self.noun], bind="legend", name="chosen")
        colours = [COLOURS[index % len(COLOURS)] for index in self._indices]
        colour = alt.Color(f"{self.noun}:N", legend=_study_legend(**legend))
        chart = alt.Chart(alt.Data(values=rows)).encode(
            color=colour.scale(domain=self.labels, range=colours),
            opacity=alt.when(chosen).then(alt.value(1)).otherwise(alt.value(0.12)),
        )
        return chart.add_params(chosen)

    def _dashed(self) -> alt.StrokeDash:
        """Dashes of each line: no two lines with one colour have the same."""
        dashes = [DASHES[(index + index // len(COLOURS)) % len(DASHES)] for index in self._indices]
        dash = alt.StrokeDash(f"{self.noun}:N", legend=_study_legend(**LINE_SYMBOLS))
        return dash.scale(domain=self.labels, range=dashes)

    @property
    def _indices(self) -> list[int]:
        # in the plan, not in what is drawn: a scheme has the same colour in every report of a study
        order = list(self.study.arms)
        return [order.index(label) for label in self.labels]

    def _full_width(self, chart: Any) -> Spec:
        sized = chart.properties(
            width="container", height=300, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
        )
        return self._styled(sized)

    def _styled(self, chart: Any) -> Spec:
        return _themed(chart).configure_view(stroke=None).to_dict()


def _study_legend(**look: Any) -> alt.Legend:
    return alt.Legend(title=None, orient="top", columns=4, labelLimit=220, symbolOpacity=1, **look)


def cross_attention_map(
    source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]]
) -> alt.Chart:
    """A heat map of cross-attention weights: a row for each target token, a column for each source token.

    Args:
        source: source tokens (keys).
        target: target tokens (queries).
        weights: attention weights, target by source; each row sums to 1.
    """
    columns, rows = (
        [f"{index} {printable_token(token)}" for index, token in enumerate(side)] for side in (source, target)
    )
    cells = [
        {"source": column, "target": row, "weight": round(weight, 4)}
        for row, line in zip(rows, weights, strict=True)
        for column, weight in zip(columns, line, strict=True)
    ]
    tips = ["target:N", "source:N", alt.Tooltip("weight:Q", format=".3f")]
    axis = alt.Axis(ticks=False, domain=False, labelLimit=220)
    return (
        alt.Chart(alt.Data(values=cells))
        .mark_rect()
        .encode(
            x=alt.X("source:N", sort=columns, title="source", axis=axis),
            y=alt.Y("target:N", sort=rows, title="target", axis=axis),
            color=alt.Color("weight:Q", title="weight").scale(scheme="viridis", domainMin=0),
            tooltip=tips,
        )
        .properties(width=min(_SIDE, _CELL * len(columns)), height=min(_SIDE, _CELL * len(rows)))
    )


def printable_token(token: str) -> str:
    """A token in printable characters: a space as an open box, an unprintable character as U+FFFD."""
    seen = "".join("␣" if c == " " else c if c.isprintable() else "\ufffd" for c in token)
    return seen or "∅"


def finding_chart(chart: Chart) -> Spec:
    """A line chart of a finding with confidence bands; the lines expected under no effect are grey and dashed.

    Axes and text use `currentColor`, so that they follow a light or dark page.
    """
    names = [line.name for line in chart.lines]
    values = sorted({x for line in chart.lines for x in line.x})
    x = alt.X("x:Q", title=chart.x).scale(**_scale(chart.across), nice=False)
    marks: dict[str, Any] = {"values": values} if len(values) <= _MAX_TICKS else {}
    if all(value == int(value) for value in values):
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
    return _clean(_themed(drawn).configure_view(stroke=None).to_dict())


def _themed(chart: Any) -> Any:
    """Let axes, text and background follow a light or dark page."""
    words = {"labelColor": "currentColor", "titleColor": "currentColor"}
    themed = chart.configure(background="transparent").configure_axis(
        labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridColor=_GREY, gridOpacity=0.25,
        domainColor=_GREY, tickColor=_GREY, **words
    )  # fmt: skip
    return themed.configure_legend(labelFontSize=12, **words)


def _clean(value: Any) -> Any:
    """Replace unprintable characters in every string: vl_convert fails on some of them."""
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else printable(value)


def _scale(kind: str) -> dict[str, Any]:
    return {"type": "log", "base": 2} if kind == "log" else {"zero": False}


def _format(chart: Chart) -> str:
    """Number format of the y axis: exponents on log scales and where all values are small."""
    most = max((abs(y) for line in chart.lines for y in line.y if y is not None), default=0.0)
    return ".1e" if most < 1e-3 or chart.scale == "log" else ",.6~g"


def _rows(chart: Chart) -> list[dict[str, Any]]:
    rows = []
    for line in chart.lines:
        low, high = line.low or line.y, line.high or line.y
        for index, x in enumerate(line.x):
            if line.y[index] is not None:
                numbers = {"y": line.y[index], "low": low[index], "high": high[index]}
                rows.append({"line": line.name, "x": x, **numbers})
    return rows


def _colours(chart: Chart, names: list[str]) -> alt.Color:
    coloured = [line.name for line in chart.lines if not line.null]
    shades = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(coloured)}
    colours = [shades.get(name, _GREY) for name in names]
    return alt.Color("line:N", legend=_legend(names)).scale(domain=names, range=colours)


def _dashes(chart: Chart, names: list[str]) -> alt.StrokeDash:
    dashes = [
        [4, 3] if line.null else DASHES[index // len(COLOURS) % len(DASHES)] for index, line in enumerate(chart.lines)
    ]
    return alt.StrokeDash("line:N", legend=_legend(names)).scale(domain=names, range=dashes)


def _legend(names: list[str]) -> alt.Legend | None:
    look: dict[str, Any] = {"symbolType": "stroke", "symbolStrokeWidth": 3, "symbolOpacity": 1}
    columns = 1 if max(map(len, names)) > _MAX_NAME else 2
    return alt.Legend(title=None, orient="top", columns=columns, labelLimit=320, **look) if len(names) > 1 else None
