"""What an evaluation measures: a ratio of sums over documents, read from a result, with its one interval.

Studies, `ordinate evaluate`, loggers and reports read results by these, so that they give the same numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ordinate.evaluation.statistics import Floats, Interval, accuracy_interval, estimate_ratio, nats_to_bits

ResultRow = Mapping[str, Any]


@dataclass(frozen=True)
class Quantity(ABC):
    """A ratio of sums over documents, sequences or images.

    Args:
        name: name in tables and sentences.
        field: field of a result that holds its value.
    """

    name: str
    field: str
    sign: ClassVar[int]
    """1 if lower is better, -1 if higher is better."""

    @abstractmethod
    def has_value(self, row: ResultRow) -> bool:
        """Whether the result has a value at this length."""

    @abstractmethod
    def table(self, row: ResultRow) -> tuple[Floats, Floats]:
        """Numerator and denominator of the ratio for each document."""

    @abstractmethod
    def interval(self, amounts: Floats, sizes: Floats) -> Interval | None:
        """95 % interval of the ratio, from seeds x documents and the size of each; None with a single document."""

    def value(self, amounts: Floats, sizes: Floats) -> float:
        """The ratio, from seeds x documents and the size of each."""
        return estimate_ratio(amounts, sizes).value


@dataclass(frozen=True)
class CrossEntropy(Quantity):
    """Cross-entropy in bits per byte or token; lower is better.

    Args:
        size: field of a document that the bits are divided by.
    """

    size: str
    sign: ClassVar[int] = 1

    def has_value(self, row: ResultRow) -> bool:
        return row["nats_per_token"] is not None

    def table(self, row: ResultRow) -> tuple[Floats, Floats]:
        amounts = nats_to_bits(np.array([document["nats"] for document in row["documents"]], float))
        return amounts, np.array([document[self.size] for document in row["documents"]], float)

    def interval(self, amounts: Floats, sizes: Floats) -> Interval | None:
        found = estimate_ratio(amounts, sizes).interval
        # no cross-entropy is below 0, which the interval of few documents may be
        return found and (max(0.0, found[0]), found[1])


@dataclass(frozen=True)
class Accuracy(Quantity):
    """The share of correct answers; higher is better."""

    sign: ClassVar[int] = -1

    def has_value(self, row: ResultRow) -> bool:
        return row["accuracy"] is not None

    def table(self, row: ResultRow) -> tuple[Floats, Floats]:
        return np.array(row["right"], float), np.array(row["asked"], float)

    def interval(self, amounts: Floats, sizes: Floats) -> Interval | None:
        return accuracy_interval(amounts, sizes) if len(sizes) > 1 else None


BITS_PER_BYTE = CrossEntropy("bits per byte", "bits_per_byte", "bytes")
BITS_PER_TOKEN = CrossEntropy("bits per token", "bits_per_token", "tokens")
BITS_PER_MASKED_TOKEN = CrossEntropy("bits per masked token", "bits_per_token", "asked")
ACCURACY = Accuracy("accuracy", "accuracy")
QUANTITIES = (BITS_PER_BYTE, BITS_PER_TOKEN, BITS_PER_MASKED_TOKEN, ACCURACY)
