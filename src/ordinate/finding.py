"""What a probe found: numbers with their uncertainty, and what is drawn from them. JSON in and out; no tensors."""

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A value that can be written as JSON and read again; it refuses fields it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Estimate(Part):
    """A measured number beside what chance alone would give."""

    name: str
    """What it is, in a few words: "change when tokens are swapped, layer 2"."""
    value: float
    low: float | None = None
    """Lower end of its 95 % interval; None: it is exact, or a single computation."""
    high: float | None = None
    """Upper end."""
    null: float | None = None
    """What is expected where there is no effect."""
    null_low: float | None = None
    """Below 95 % of what chance gives, lower end."""
    null_high: float | None = None
    """Upper end."""
    unit: str = ""
    """What it is counted in: nats, tokens, share."""

    @property
    def written(self) -> tuple[str, str, str]:
        """The value and the ends of its interval in as many digits as that leaves sure; ends it has not are empty."""
        if self.low is None or self.high is None:
            return number(self.value), "", ""
        values, half = (self.value, self.low, self.high), (self.high - self.low) / 2
        size = max(map(abs, values))
        if half == 0:
            return number(self.value), number(self.low), number(self.high)
        # down to the first digit of half the interval, but no more than three in all
        last = min(-math.floor(math.log10(half)), 2 - math.floor(math.log10(size)))
        return _rounded(self.value, last), _rounded(self.low, last), _rounded(self.high, last)


class Table(Part):
    """Rows of numbers and words."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]
    caption: str = ""


class Line(Part):
    """One line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] | None = None
    """Lower edge of its band."""
    high: tuple[float | None, ...] | None = None
    """Upper edge."""
    null: bool = False
    """Whether it is what chance gives; drawn grey."""


class Chart(Part):
    """Lines over one axis: by layer, by position, by distance."""

    title: str
    x: str
    """Name of the axis across."""
    y: str
    """Name of the axis upwards."""
    lines: tuple[Line, ...]
    caption: str = ""
    scale: Literal["linear", "log"] = "linear"
    """Scale of the axis upwards."""
    across: Literal["linear", "log"] = "linear"
    """Scale of the axis across."""


class Panel(Part):
    """A matrix drawn in colours."""

    name: str
    """What it is: "layer 3, head 7"."""
    values: tuple[tuple[float, ...], ...]
    """Rows from top to bottom; block means where the matrix is larger than 64 a side."""
    whole: tuple[int, int] | None = None
    """Rows and columns of the matrix where these are means of its blocks; None: they are the matrix."""
    note: str = ""


class Picture(Part):
    """Matrices of one kind, small beside each other; each opens on a click."""

    title: str
    x: str
    y: str
    panels: tuple[Panel, ...]
    caption: str = ""
    first: int = 0
    """The number of the first row and of the first column."""
    middle: float | None = None
    """The number drawn in the middle colour of a diverging scale; None: the scale goes one way."""


class Finding(Part):
    """The answer of one question."""

    question: str
    """The name of the probe: order, closeness, ..."""
    title: str
    """The question as people ask it."""
    status: Literal["measured", "skipped"] = "measured"
    answer: str
    """The answer in a sentence or two, with its uncertainty; of a skipped one, the reason."""
    estimates: tuple[Estimate, ...] = ()
    """The numbers that the answer rests on, the most important first."""
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    pictures: tuple[Picture, ...] = ()
    method: str = ""
    """How it was measured: sample, interventions, controls, interval, correction for many comparisons."""
    null: str = ""
    """What no effect would look like, and how that was computed."""
    caveats: tuple[str, ...] = ()
    seed: int = 0
    seconds: float = 0.0
    """What it cost."""


def estimate(findings: Sequence[Finding], question: str, name: str) -> Estimate:
    """The estimate of this name in the finding of this question.

    Raises:
        KeyError: there is none.
    """
    for finding in findings:
        for found in finding.estimates:
            if (finding.question, found.name) == (question, name):
                return found
    raise KeyError(f"{question}: {name}")


def number(value: float | int | str | None) -> str:
    """A number in few digits."""
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
    """A number down to its last digit, counted behind the point."""
    size = abs(value)
    if size < 0.5 * 10**-last:
        return "0"
    if size >= 1e5 or size < 1e-3:
        return f"{value:.{max(0, last + math.floor(math.log10(size)))}e}"
    return f"{round(value, last):,.{max(0, last)}f}"
