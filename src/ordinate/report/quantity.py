"""What the models of a study are compared by, and how it is said: the contract, and two sorts of numbers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ordinate import catalog
from ordinate.study.statistics import Interval, Numbers, bits, interval, share_interval

PACKAGE = "ordinate.report.quantities"
# of every task that makes its own sequences
QUESTIONS = "questions"

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
    section: ClassVar[str]
    """Where study.json says what was learned from."""
    units: ClassVar[str]
    """What it is measured on, and drawn again for the intervals."""
    drawn: ClassVar[str] = "held-out"
    """Why no model has seen them: held-out, or fresh."""
    source: ClassVar[str]
    """What was learned from."""
    this: ClassVar[str] = "this"
    """What points to it: this, or these."""
    inputs: ClassVar[str]
    """What a model reads."""
    loss: ClassVar[str]
    """The unit of losses."""
    answers: ClassVar[str] = "answers"
    """What is told rightly or not, slice by slice."""
    models: ClassVar[str] = "Decoders"
    """What the models are."""
    extent: ClassVar[str] = "length"
    """What grows beyond that of training: a length, or a size."""
    extent_unit: ClassVar[str] = "tokens"
    """What that is counted in."""
    taken: ClassVar[str] = "Read"
    """What is done with inputs of another extent."""
    beyond: ClassVar[str] = "read further than it was trained"
    """What a model must do that is given such."""
    beyond_title: ClassVar[str] = "Reading further than trained"
    """The head of the chart of such."""
    speed: ClassVar[str] = "tokens"
    """What is counted in a second of training."""
    charts: ClassVar[tuple[str, ...]]
    """Which charts there are."""
    sections: ClassVar[tuple[str, ...]]
    """Sections of a finished run's result."""
    single: ClassVar[tuple[str, ...]]
    """What a result tells of single units, from which the table is made."""
    also: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    """What else is told of the trained length: its name in the result, the head of its column, its format."""
    explained: ClassVar[str]
    """What it is, for the note under the table."""
    further: ClassVar[str]
    """What reading further than trained means, for the note under the table."""
    curve: ClassVar[str] = ""
    """What the chart of reading further shows."""
    written: ClassVar[str] = ""
    """What the samples show."""

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

    def title(self, plan: Row, learned: Row) -> str:
        """What the models were compared on."""
        return str(learned["name"])

    def step(self, plan: Row, learned: Row) -> str:
        """What a step of training is made of, and what the models were then made to read."""
        return (
            f"{plan['batch']} x {plan['length']} tokens, then made to read up to "
            f"{max(plan['multiples'])} times that length"
        )

    def besides(self, label: str, results: Sequence[Row]) -> list[str]:
        """What else the verdict says of the best one, from the results of its runs."""
        return []

    @abstractmethod
    def measured_on(self, plan: Row, learned: Row) -> str:
        """A sentence on what is measured on."""


class Surprise(Quantity):
    """Bits that a model needs to say something: the lower, the better."""

    best, sign, single = "lowest", 1, ("documents",)
    size: ClassVar[str]
    """What the bits are divided by, of each row's documents or pairs."""

    def measured(self, row: Row) -> bool:
        """Whether something held out is as long."""
        return row["nats_per_token"] is not None

    def table(self, row: Row) -> tuple[Numbers, Numbers]:
        """Bits, and what they are divided by, of each."""
        amounts = bits(np.array([document["nats"] for document in row["documents"]], float))
        return amounts, np.array([document[self.size] for document in row["documents"]], float)

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
        return f"{number:.3f} {self.bounds(bounds) if bounds else '(interval unknown)'} {self.name}"

    def difference(self, number: float) -> str:
        """Two digits."""
        return f"{number:.2f}"

    def gap(self, number: float, bounds: Bounds) -> str:
        """With its interval."""
        return f"{number:.3f} {self.bounds(bounds or (math.nan, math.nan))}"

    def measured_on(self, plan: Row, learned: Row) -> str:
        """What was held out."""
        return f"Measured on {self.source} that no model has seen: {learned['held_out']}."


class Share(Quantity):
    """The share of right answers: the higher, the better."""

    name, column, best, sign, single = "accuracy", "accuracy", "highest", -1, ("right", "asked")

    def measured(self, row: Row) -> bool:
        """Whether there are questions as long."""
        return row["accuracy"] is not None

    def table(self, row: Row) -> tuple[Numbers, Numbers]:
        """Right answers and questions of each unit."""
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


def quantity_of(plan: Row) -> Quantity:
    """What the models of a plan are compared by: named as its task is, or of all that make their own sequences."""
    name = str(plan.get("task", "text")).partition(":")[0]
    own = [one for one in catalog.names(PACKAGE) if one != QUESTIONS]
    return catalog.load(PACKAGE, Quantity, name if name in own else QUESTIONS)()
