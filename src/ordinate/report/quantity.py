"""What the models of a study are compared by, and how it is said."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ordinate.study.statistics import Interval, Numbers, bits, interval, share_interval

Row = Mapping[str, Any]
Bounds = Interval | None


class Quantity(ABC):
    """A ratio, such as bits over bytes, with the words that go with it."""

    name: ClassVar[str]
    """What it is called."""
    column: ClassVar[str]
    """How its columns in results.csv begin."""
    best: ClassVar[str]
    """Which number is the best: the lowest or the highest."""
    sign: ClassVar[int]
    """1 where more is worse, -1 where more is better."""
    units: ClassVar[str]
    """What it is measured on, and drawn again for the intervals."""
    source: ClassVar[str]
    """What was learned from."""
    inputs: ClassVar[str]
    """What a model reads."""
    loss: ClassVar[str]
    """The unit of training losses."""
    charts: ClassVar[tuple[str, ...]]
    """Which charts there are."""
    sections: ClassVar[tuple[str, ...]]
    """Sections of a finished run's result."""

    @abstractmethod
    def measured(self, row: Row) -> bool:
        """Whether there is a number at this length."""

    @abstractmethod
    def table(self, row: Row) -> tuple[Numbers, Numbers]:
        """The two sides of the ratio for each unit."""

    @abstractmethod
    def interval(self, values: Numbers, amounts: Numbers, sizes: Numbers) -> Bounds:
        """Where 95 % of the resampled values lie."""

    @abstractmethod
    def text(self, number: float) -> str:
        """A number as in the table."""

    @abstractmethod
    def bounds(self, bounds: Interval) -> str:
        """An interval as in the table."""

    @abstractmethod
    def said(self, number: float, bounds: Bounds) -> str:
        """A number in a sentence."""

    @abstractmethod
    def difference(self, number: float) -> str:
        """A difference in a sentence, short."""

    @abstractmethod
    def gap(self, number: float, bounds: Bounds) -> str:
        """A paired difference in a sentence."""


class Bits(Quantity):
    """Bits that a model needs to say each next byte of a text."""

    name, column, best, sign = "bits per byte", "bits_per_byte", "lowest", 1
    units, source, inputs, loss = "documents", "text", "texts", "nats a token"
    charts = ("training", "lengths", "positions", "order", "cost")
    sections = ("positions", "order", "samples")

    def measured(self, row: Row) -> bool:
        """Whether some document is as long."""
        return row["nats_per_token"] is not None

    def table(self, row: Row) -> tuple[Numbers, Numbers]:
        """Bits and bytes of each document."""
        amounts = bits(np.array([document["nats"] for document in row["documents"]], float))
        return amounts, np.array([document["bytes"] for document in row["documents"]], float)

    def interval(self, values: Numbers, amounts: Numbers, sizes: Numbers) -> Bounds:
        """The middle of the resamples."""
        return interval(values, len(sizes))

    def text(self, number: float) -> str:
        """Three digits."""
        return f"{number:.3f}"

    def bounds(self, bounds: Interval) -> str:
        """In brackets."""
        return f"[{bounds[0]:.3f}, {bounds[1]:.3f}]"

    def said(self, number: float, bounds: Bounds) -> str:
        """With its interval and unit."""
        return f"{number:.3f} {self.bounds(bounds) if bounds else '(interval unknown)'} bits per byte"

    def difference(self, number: float) -> str:
        """Two digits."""
        return f"{number:.2f}"

    def gap(self, number: float, bounds: Bounds) -> str:
        """With its interval."""
        return f"{number:.3f} {self.bounds(bounds or (math.nan, math.nan))}"


class Accuracy(Quantity):
    """The share of a task's questions that a model answers rightly."""

    name, column, best, sign = "accuracy", "accuracy", "highest", -1
    units, source, inputs, loss = "sequences", "task", "sequences", "nats an answer"
    charts = ("training", "cost")
    sections = ()

    def measured(self, row: Row) -> bool:
        """Whether the task can be as long."""
        return row["accuracy"] is not None

    def table(self, row: Row) -> tuple[Numbers, Numbers]:
        """Right answers and questions of each sequence."""
        return np.array(row["right"], float), np.array(row["asked"], float)

    def interval(self, values: Numbers, amounts: Numbers, sizes: Numbers) -> Bounds:
        """The middle of the resamples, and no narrower than what all or none right would leave open."""
        drawn, open_ = interval(values, len(sizes)), share_interval(amounts.mean(0), sizes)
        return None if drawn is None else (min(drawn[0], open_[0]), max(drawn[1], open_[1]))

    def text(self, number: float) -> str:
        """In per cent."""
        return f"{100 * number:.1f} %"

    def bounds(self, bounds: Interval) -> str:
        """In brackets."""
        return f"[{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"

    def said(self, number: float, bounds: Bounds) -> str:
        """With its interval."""
        return f"{self.text(number)} {self.bounds(bounds) if bounds else '(interval unknown)'} right"

    def difference(self, number: float) -> str:
        """In points."""
        return f"{100 * number:.1f} points"

    def gap(self, number: float, bounds: Bounds) -> str:
        """With its interval, in points."""
        return f"{100 * number:.1f} {self.bounds(bounds or (math.nan, math.nan))} points"
