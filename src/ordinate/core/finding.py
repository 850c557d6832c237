"""Result schema of a probe: estimates with uncertainty, tables and charts, serialisable as JSON; no tensors."""

import math
from collections.abc import Sequence
from html import escape
from typing import Literal

from pydantic import BaseModel, ConfigDict

from ordinate.core.html_display import html_table

Grade = Literal["yes", "weakly", "no", "cannot be told"]
"""Answer to the question of a probe."""
# smaller ends of an interval, as a share of its last digit, may be rounding errors
NOISE = 1e-3


class Record(BaseModel):
    """Base class of immutable JSON records; unknown fields raise an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Estimate(Record):
    """A measured value with its confidence interval and its null distribution."""

    name: str
    """Quantity, in a few words: "change when tokens are swapped, layer 2"."""
    value: float
    low: float | None = None
    """Lower end of the 95 % confidence interval; None: the value is exact, or a single computation."""
    high: float | None = None
    """Upper end of the 95 % confidence interval."""
    null: float | None = None
    """Expected value under the null hypothesis (no effect)."""
    null_low: float | None = None
    """Lower end of the central 95 % interval under the null."""
    null_high: float | None = None
    """Upper end of the central 95 % interval under the null."""
    unit: str = ""
    """Unit: nats, tokens, share."""

    @property
    def formatted(self) -> tuple[str, str, str]:
        """Format the value and its interval, rounded to the precision of the interval; missing ends are empty."""
        if self.low is None or self.high is None:
            return format_number(self.value), "", ""
        values, half = (self.value, self.low, self.high), (self.high - self.low) / 2
        size = max(map(abs, values))
        if half == 0:
            return format_number(self.value), format_number(self.low), format_number(self.high)
        # last digit shown: the leading digit of half the interval, but at most three significant digits of the value
        last = min(-math.floor(math.log10(half)), 2 - math.floor(math.log10(size)))
        return _rounded(self.value, last), _rounded_end(self.low, last), _rounded_end(self.high, last)

    @property
    def described(self) -> str:
        """Name, value, unit, interval and null as a phrase: "share: 0.71 [0.68, 0.74] (without effect: 0.1)"."""
        value, low, high = self.formatted
        interval = f" [{low}, {high}]" if low else ""
        null = "" if self.null is None else format_number(self.null)
        if self.null_low is not None and self.null_high is not None:
            null = f"{format_number(self.null_low)} to {format_number(self.null_high)}"
        return f"{self.name}: {value}{interval} {self.unit}".rstrip() + (f" (without effect: {null})" if null else "")

    def graded(self, size: float) -> Grade:
        """Grade an effect that is above its null if it is there, by its interval.

        - yes: the interval is above the null, and the value at least `size`;
        - weakly: the interval is above the null, but the value below `size`;
        - no: the interval includes the null and excludes `size`;
        - cannot be told: it includes both, or there is a number that is not finite.

        An estimate without an interval is exact: its value is its interval.

        Args:
            size: smallest effect that matters, in the unit of the estimate.
        """
        low, high = (self.value if end is None else end for end in (self.low, self.high))
        null = self.null if self.null_high is None else self.null_high
        if not all(map(math.isfinite, (self.value, low, high))):
            return "cannot be told"
        if low > (null or 0.0):
            return "yes" if self.value >= size else "weakly"
        return "no" if high < size else "cannot be told"


class Table(Record):
    """Table of numbers and text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]
    caption: str = ""


class Line(Record):
    """One line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] | None = None
    """Lower edge of the error band."""
    high: tuple[float | None, ...] | None = None
    """Upper edge of the error band."""
    null: bool = False
    """True for a null baseline; drawn grey."""


class Chart(Record):
    """Line chart, for example over layer, position or offset."""

    title: str
    x: str
    """Label of the x axis."""
    y: str
    """Label of the y axis."""
    lines: tuple[Line, ...]
    caption: str = ""
    scale: Literal["linear", "log"] = "linear"
    """Scale of the y axis."""
    across: Literal["linear", "log"] = "linear"
    """Scale of the x axis."""


class Heatmap(Record):
    """A matrix drawn as a heatmap, for instance an attention pattern."""

    name: str
    """Label: "layer 3, head 7"."""
    values: tuple[tuple[float, ...], ...]
    """Rows from top to bottom; block means if the matrix has more than 64 rows or columns."""
    whole: tuple[int, int] | None = None
    """Shape of the full matrix if `values` are block means; None: `values` is the full matrix."""
    note: str = ""


class HeatmapGrid(Record):
    """Grid of small heatmaps of one kind; each opens on a click."""

    title: str
    x: str
    y: str
    panels: tuple[Heatmap, ...]
    caption: str = ""
    first: int = 0
    """Number of the first row and column."""
    middle: float | None = None
    """Value at the centre of a diverging colour scale; None: a sequential scale."""


class Finding(Record):
    """Result of one probe: the answer in words, its evidence and its method."""

    question: str
    """Name of the probe: order, closeness, ..."""
    title: str
    """The question that the probe answers, as a reader would ask it."""
    status: Literal["measured", "skipped"] = "measured"
    grade: Grade | None = None
    """The answer in a word; None: skipped or failed."""
    effect: Estimate | None = None
    """The estimate that the grade rests on."""
    answer: str
    """What the grade means, in a few sentences that do not repeat it; for a skipped probe, the reason."""
    estimates: tuple[Estimate, ...] = ()
    """The numbers behind the answer, the most important first."""
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    pictures: tuple[HeatmapGrid, ...] = ()
    method: str = ""
    """Method: sample, interventions, controls, interval, correction for multiple comparisons."""
    null: str = ""
    """Null hypothesis, and how its distribution was computed."""
    caveats: tuple[str, ...] = ()
    seed: int = 0
    seconds: float = 0.0
    """Run time [s]."""

    @property
    def verdict(self) -> str:
        """Grade and the estimate that it rests on, as a sentence; empty if there is no grade."""
        if self.grade is None:
            return ""
        effect = "" if self.effect is None else f" {self.effect.described[:1].upper()}{self.effect.described[1:]}."
        return f"{self.grade.capitalize()}.{effect}"

    @property
    def headline(self) -> str:
        """Grade, effect with interval and null, and what they mean."""
        return f"{self.verdict} {self.answer}".lstrip()

    def _repr_html_(self) -> str:
        """Show the question, the headline and the estimates, in a notebook."""
        rows = [[one.name, *one.formatted, one.unit] for one in self.estimates]
        table = html_table(("", "value", "low", "high", "unit"), rows) if rows else ""
        return f"<div><b>{escape(self.title)}</b><p>{escape(self.headline)}</p>{table}</div>"


def find_estimate(findings: Sequence[Finding], question: str, name: str) -> Estimate:
    """Find the estimate `name` in the finding of the probe `question`.

    Raises:
        KeyError: there is no such estimate.
    """
    for finding in findings:
        for found in finding.estimates:
            if (finding.question, found.name) == (question, name):
                return found
    raise KeyError(f"{question}: {name}")


def format_number(value: float | int | str | None) -> str:
    """Format a number with about three significant digits."""
    if value is None:
        return ""
    if isinstance(value, str | int):
        return str(value)
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e5 or size < 1e-3:
        return f"{value:.1e}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.3g}"


def _rounded_end(value: float, last: int) -> str:
    """Format the end of an interval; one that is not 0 is not shown as 0, unless rounding errors may be all of it."""
    text = _rounded(value, last)
    return f"{value:.1g}" if text == "0" and abs(value) > NOISE * 10**-last else text


def _rounded(value: float, last: int) -> str:
    """Format a value rounded to `last` decimal places (negative: tens, hundreds, ...)."""
    size = abs(value)
    if size < 0.5 * 10**-last:
        return "0"
    if size >= 1e5 or size < 1e-3:
        return f"{value:.{max(0, last + math.floor(math.log10(size)))}e}"
    return f"{round(value, last):,.{max(0, last)}f}"
