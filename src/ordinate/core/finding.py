"""Result schema of a probe: estimates with uncertainty, tables and charts, serialisable as JSON; no tensors."""

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict


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
        return _rounded(self.value, last), _rounded(self.low, last), _rounded(self.high, last)


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
    """One heatmap."""

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
    answer: str
    """The answer in a sentence or two, with its uncertainty; for a skipped probe, the reason."""
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


def _rounded(value: float, last: int) -> str:
    """Format a value rounded to `last` decimal places (negative: tens, hundreds, ...)."""
    size = abs(value)
    if size < 0.5 * 10**-last:
        return "0"
    if size >= 1e5 or size < 1e-3:
        return f"{value:.{max(0, last + math.floor(math.log10(size)))}e}"
    return f"{round(value, last):,.{max(0, last)}f}"
