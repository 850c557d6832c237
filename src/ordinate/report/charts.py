"""The curves of a report, as Vega-Lite specifications."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from ordinate.report.crossing import crossing
from ordinate.report.read import DRAWN, Study
from ordinate.report.summary import Entry

# told apart by people of every kind of colour vision; dashes tell further schemes apart
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8c6d31")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
Row = dict[str, Any]
Spec = dict[str, Any]


class Charts:
    """Every chart of a study, drawn with one colour for each scheme or mixer: the best, and of each the first seeds,
    where there are too many to be told apart.

    Args:
        study: the results.
        entries: the same in numbers.
    """

    def __init__(self, study: Study, entries: Sequence[Entry]) -> None:
        self.study, self.entries, self.noun = study, entries[:DRAWN], study.noun
        drawn = {entry.label for entry in self.entries}
        self.labels = [label for label in study.compared if label in drawn]

    def training(self) -> Spec:
        """Loss while training."""
        rows = []
        for label, result in self._runs():
            points = zip(result["training"]["steps"], result["training"]["loss"], strict=True)
            rows += [self._row(label, result, step=step, loss=loss) for step, loss in points]
        return self._lines(rows, ("step", "step"), ("loss", f"loss [{self.study.quantity.loss}]"))

    def lengths(self) -> Spec:
        """The number compared by how far is read."""
        rows: list[Row] = [
            {
                self.noun: entry.label,
                "times": level.times,
                "across": level.times * self._aside(entry.label),
                "value": level.value,
                "low": level.interval[0] if level.interval else level.value,
                "high": level.interval[1] if level.interval else level.value,
            }
            for entry in self.entries
            for level in entry.levels.values()
        ]
        base = self._base(rows)
        x = alt.X("across:Q", title=f"times the trained {self.study.quantity.extent}").scale(type="log", base=2)
        x = x.axis(values=sorted({row["times"] for row in rows}), format="d", grid=False)
        y = alt.Y("value:Q", title=self.study.quantity.name).scale(zero=False)
        tips = [
            f"{self.noun}:N",
            "times:Q",
            *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("value", "low", "high")),
        ]
        lines = base.mark_line(point=True).encode(x=x, y=y, tooltip=tips)
        bars = base.mark_rule(strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q", tooltip=tips)
        return self._spec(alt.layer(bars, lines))

    def positions(self) -> Spec:
        """Loss by place in the longest text read."""
        rows = [
            self._row(label, result, position=place, loss=loss)
            for label, result in self._runs()
            for place, loss in zip(
                result["positions"]["position"], result["positions"]["nats_per_token"], strict=True
            )
        ]
        length = next(result["positions"]["trained_length"] for _, result in self._runs())
        mark = alt.Chart(alt.Data(values=[{"position": length, "what": "trained length"}]))
        rule = mark.mark_rule(strokeDash=[4, 4], color="#666").encode(
            x="position:Q", tooltip=["what:N", "position:Q"]
        )
        return self._lines(rows, ("position", "position [tokens]"), ("loss", "loss [nats a token]"), rule)

    def order(self) -> Spec:
        """Loss when tokens are shuffled."""
        rows = [
            self._row(label, result, window=row["window"], loss=row["nats_per_token"])
            for label, result in self._runs()
            for row in result["order"]
        ]
        values = sorted({row["window"] for row in rows})
        x = alt.X("window:Q", title="tokens shuffled inside windows of").scale(type="log", base=2)
        x = x.axis(values=values, format="d", grid=False)
        y = alt.Y("loss:Q", title=f"loss [{self.study.quantity.loss}]").scale(zero=False)
        tips = self._tips("window", "loss")
        return self._spec(self._base(rows).mark_line(point=True).encode(x=x, y=y, tooltip=tips, detail="seed:N"))

    def crossing(self) -> Spec:
        """What the best one looks at in a source."""
        found = self.study.done(self.entries[0].label)[0]["crossing"]
        return self._styled(crossing(found["source"], found["target"], found["weights"]))

    def cost(self) -> Spec:
        """Speed against quality."""
        kind = self.study.quantity
        rows = [
            self._row(label, result, speed=result["cost"]["tokens_per_second"], value=self._value(label))
            for label, result in self._runs()
            if result["cost"].get("tokens_per_second")
        ]
        fastest = {row[self.noun]: row for row in sorted(rows, key=lambda row: row["speed"])}
        for row in rows:
            # seeds of one lie close together: one of them is named
            row["name"] = row[self.noun] if row is fastest[row[self.noun]] else ""
        x = alt.X("speed:Q", title=f"training speed [{kind.speed} a second]").scale(zero=False, padding=24)
        x = x.axis(labelOverlap=True)
        y = alt.Y("value:Q", title=kind.name).scale(zero=False, padding=16)
        base = self._base(rows, dashed=False)
        points = base.mark_point(size=90, filled=True).encode(x=x, y=y, tooltip=self._tips("speed", "value"))
        names = base.mark_text(align="left", dx=9, fontSize=12).encode(x=x, y=y, text="name:N")
        return self._spec(alt.layer(points, names))

    def _runs(self) -> list[tuple[str, Row]]:
        return [(label, result) for label in self.labels for result in self.study.done(label)[: self.study.drawn]]

    @property
    def left_out(self) -> str:
        """What is not drawn, in a sentence; nothing where everything is."""
        every, seeds = len(self.study.compared), self.study.plan["seeds"]
        best = f"the {len(self.labels)} best of {every}" if len(self.labels) == DRAWN < every else ""
        first = f"the first {self.study.drawn} of {seeds} seeds" if self.study.drawn < seeds else ""
        return f" Drawn: {' and '.join(filter(None, (best, first)))}." if best or first else ""

    def _row(self, label: str, result: Row, **numbers: Any) -> Row:
        return {self.noun: label, "seed": result["run"]["seed"], **numbers}

    def _aside(self, label: str) -> float:
        # a little apart, so that intervals do not hide each other
        return 2 ** (0.03 * (self.labels.index(label) - (len(self.labels) - 1) / 2))

    def _value(self, label: str) -> float:
        return next(entry.trained.value for entry in self.entries if entry.label == label)

    def _tips(self, x: str, y: str) -> list[Any]:
        return [f"{self.noun}:N", "seed:N", f"{x}:Q", alt.Tooltip(f"{y}:Q", format=".3f")]

    def _lines(self, rows: list[Row], x: tuple[str, str], y: tuple[str, str], *more: alt.Chart) -> Spec:
        across = alt.X(f"{x[0]}:Q", title=x[1]).axis(grid=False)
        up = alt.Y(f"{y[0]}:Q", title=y[1]).scale(zero=False)
        lines = self._base(rows).mark_line(strokeWidth=2, interpolate="linear")
        return self._spec(
            alt.layer(lines.encode(x=across, y=up, tooltip=self._tips(x[0], y[0]), detail="seed:N"), *more)
        )

    def _base(self, rows: list[Row], *, dashed: bool = True) -> alt.Chart:
        chosen = alt.selection_point(fields=[self.noun], bind="legend", name="chosen")
        order = list(self.study.compared)
        places = [order.index(label) for label in self.labels]
        colours = [COLOURS[place % len(COLOURS)] for place in places]
        dashes = [DASHES[place // len(COLOURS) % len(DASHES)] for place in places]
        legend = alt.Legend(title=None, orient="top", columns=4, symbolStrokeWidth=3, labelLimit=220)
        chart = alt.Chart(alt.Data(values=rows)).encode(
            color=alt.Color(f"{self.noun}:N", legend=legend).scale(domain=self.labels, range=colours),
            opacity=alt.when(chosen).then(alt.value(1)).otherwise(alt.value(0.12)),
        )
        if dashed:
            dash = alt.StrokeDash(f"{self.noun}:N", legend=legend).scale(domain=self.labels, range=dashes)
            chart = chart.encode(strokeDash=dash)
        return chart.add_params(chosen)

    def _spec(self, chart: Any) -> Spec:
        sized = chart.properties(
            width="container", height=300, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
        )
        return self._styled(sized)

    def _styled(self, chart: Any) -> Spec:
        styled = chart.configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridColor="#eee")
        return styled.configure_view(stroke=None).configure_legend(labelFontSize=12).to_dict()
