"""The metric of a comparison and its wording in reports: the contract, and base classes for loss and accuracy."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.evaluation.quantity import ACCURACY, Quantity
from ordinate.evaluation.statistics import Floats, Interval

PACKAGE = "ordinate.report.metrics"
# in place of an interval that one document cannot give
UNKNOWN = "(interval unknown)"
# the metric of all tasks that generate their own sequences
DEFAULT_METRIC = "questions"

ResultRow = Mapping[str, Any]
Bounds = Interval | None


class Metric(ABC):
    """A metric: a ratio of sums such as bits over bytes, and the texts that describe it in a report."""

    quantity: ClassVar[Quantity]
    """What is measured, and its interval."""
    csv_prefix: ClassVar[str]
    """Prefix of its columns in results.csv."""
    best: ClassVar[str]
    """Which value is best: lowest or highest."""
    section: ClassVar[str]
    """Section of study.json that describes the training data."""
    units: ClassVar[str]
    """The units of evaluation, of which the intervals take a sample: documents, sequences, images."""
    unseen_word: ClassVar[str] = "held-out"
    """Why no model has seen the evaluation data: held-out, or fresh (generated from unused seeds)."""
    source: ClassVar[str]
    """The word for the training data: text, task, images."""
    this: ClassVar[str] = "this"
    """The demonstrative that agrees with `source`: this or these."""
    inputs: ClassVar[str]
    """The word for the inputs of a model: texts, sequences, images."""
    loss: ClassVar[str]
    """Unit of losses."""
    answers: ClassVar[str] = "answers"
    """The word for predictions that are scored as correct or not, by slice."""
    models: ClassVar[str] = "Decoders"
    """The word for the models: decoders, encoders."""
    extent: ClassVar[str] = "length"
    """The dimension of extrapolation: length or size."""
    extent_unit: ClassVar[str] = "tokens"
    """Unit of that dimension."""
    extent_verb: ClassVar[str] = "Evaluated"
    """Participle for evaluation at another length or size."""
    extrapolation_phrase: ClassVar[str] = "read longer inputs than in training"
    """Verb phrase for extrapolation, as in "if the model must ..."."""
    extrapolation_title: ClassVar[str] = "Length extrapolation"
    """Title of the extrapolation chart."""
    speed: ClassVar[str] = "tokens"
    """The word for what training speed counts: tokens, images."""
    charts: ClassVar[tuple[str, ...]]
    """Names of the charts."""
    sections: ClassVar[tuple[str, ...]]
    """Sections that the result of a finished run must have."""
    per_unit_fields: ClassVar[tuple[str, ...]]
    """Fields with values for each unit; dropped once `table` has been computed."""
    extra_columns: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    """Further numbers at the trained length: field of the result, column heading, format."""
    tolerance: ClassVar[float] = 0.1
    """Largest difference at the trained length that another processor or version may make (`ordinate reproduce`)."""
    definition: ClassVar[str]
    """Definition, for the note under the table."""
    extrapolation_definition: ClassVar[str]
    """Definition of evaluation beyond the trained length, for the note under the table."""
    extrapolation_caption: ClassVar[str] = ""
    """Caption of the extrapolation chart."""
    samples_caption: ClassVar[str] = ""
    """Caption of the samples."""

    @property
    def name(self) -> str:
        """Name in tables and sentences."""
        return self.quantity.name

    @property
    def sign(self) -> int:
        """1 if lower is better, -1 if higher is better."""
        return self.quantity.sign

    def has_value(self, row: ResultRow) -> bool:
        """Whether the result has a value at this length."""
        return self.quantity.has_value(row)

    def table(self, row: ResultRow) -> tuple[Floats, Floats]:
        """Numerator and denominator of the ratio for each unit."""
        return self.quantity.table(row)

    def interval(self, amounts: Floats, sizes: Floats) -> Bounds:
        """95 % interval of the ratio, from seeds x units and the size of each unit; None with a single unit."""
        return self.quantity.interval(amounts, sizes)

    @abstractmethod
    def format_value(self, number: float) -> str:
        """Format a value for the table."""

    @abstractmethod
    def format_interval(self, bounds: Interval) -> str:
        """Format an interval for the table."""

    @abstractmethod
    def sentence(self, number: float, bounds: Bounds) -> str:
        """Format a value with its interval for a sentence."""

    @abstractmethod
    def format_change(self, number: float) -> str:
        """Format a difference for a sentence, without an interval."""

    @abstractmethod
    def format_difference(self, number: float, bounds: Bounds) -> str:
        """Format a paired difference with its interval for a sentence."""

    @abstractmethod
    def format_effect(self, difference: float, bounds: Bounds, relative: float | None) -> str:
        """Format by how much the best is better than another, so that "than" can follow.

        Args:
            difference: how much worse the other is.
            bounds: interval of the difference.
            relative: the difference as a share of the other's value.
        """

    def title(self, plan: ResultRow, learned: ResultRow) -> str:
        """Name of the data or task."""
        return str(learned["name"])

    def step(self, plan: ResultRow, learned: ResultRow) -> str:
        """Batch size of a training step, and the lengths of evaluation."""
        return (
            f"{plan['batch']} x {plan['length']} tokens, evaluated at up to "
            f"{max(plan['eval_length_multiples'])} times that length"
        )

    def extra_sentences(self, label: str, results: Sequence[ResultRow]) -> list[str]:
        """Further sentences of the verdict about the best model, from the results of its runs."""
        return []

    @abstractmethod
    def describe_evaluation(self, plan: ResultRow, learned: ResultRow) -> str:
        """A sentence on the evaluation data."""


class CrossEntropyMetric(Metric):
    """Cross-entropy in bits per byte or token; lower is better."""

    best, per_unit_fields = "lowest", ("documents",)

    def format_value(self, number: float) -> str:
        return f"{number:.3f}"

    def format_interval(self, bounds: Interval) -> str:
        return f"[{bounds[0]:.3f}, {bounds[1]:.3f}]"

    def sentence(self, number: float, bounds: Bounds) -> str:
        return f"{number:.3f} {self.format_interval(bounds) if bounds else UNKNOWN} {self.name}"

    def format_change(self, number: float) -> str:
        return f"{number:.2f}"

    def format_difference(self, number: float, bounds: Bounds) -> str:
        return f"{number:.3f} {self.format_interval(bounds) if bounds else UNKNOWN}"

    def format_effect(self, difference: float, bounds: Bounds, relative: float | None) -> str:
        if not relative:
            return f"{self.format_difference(difference, bounds)} fewer {self.name}"
        share = 100 * relative / difference
        ends = f" [{share * bounds[0]:.1f}, {share * bounds[1]:.1f}]" if bounds else ""
        return f"{share * difference:.1f} %{ends} fewer {self.name}"

    def describe_evaluation(self, plan: ResultRow, learned: ResultRow) -> str:
        return f"Evaluated on held-out {self.source}: {learned['held_out']}."


class AccuracyMetric(Metric):
    """Accuracy: the share of correct answers; higher is better."""

    quantity, csv_prefix, best, per_unit_fields = ACCURACY, "accuracy", "highest", ("right", "asked")

    def format_value(self, number: float) -> str:
        return f"{100 * number:.1f} %"

    def format_interval(self, bounds: Interval) -> str:
        return f"[{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"

    def sentence(self, number: float, bounds: Bounds) -> str:
        return f"{self.format_value(number)} {self.format_interval(bounds) if bounds else UNKNOWN} correct"

    def format_change(self, number: float) -> str:
        return f"{100 * number:.1f} points"

    def format_difference(self, number: float, bounds: Bounds) -> str:
        return f"{100 * number:.1f} {self.format_interval(bounds) if bounds else UNKNOWN} points"

    def format_effect(self, difference: float, bounds: Bounds, relative: float | None) -> str:
        return f"accuracy higher by {self.format_difference(difference, bounds)}"


def metric_of(plan: ResultRow) -> Metric:
    """Return the metric of a plan: the one named after its task, else the one of tasks that generate sequences."""
    name = str(plan.get("task", "text")).partition(":")[0]
    own = [one for one in catalog.names(PACKAGE) if one != DEFAULT_METRIC]
    return catalog.load(PACKAGE, Metric, name if name in own else DEFAULT_METRIC)()
