"""Results of an evaluation: values by length with intervals, changes between lengths, differences between models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ordinate.evaluation.quantity import Quantity
from ordinate.evaluation.statistics import CONFIDENCE, Floats, Interval, estimate_change


@dataclass(frozen=True)
class LengthTable:
    """What was measured at one length.

    Args:
        times: the length as a multiple of the trained one; 0 if it is not a whole multiple, or none is known.
        length: the length [tokens, or pixels of an image's side].
        amounts: bits or correct answers, seeds x documents.
        sizes: bytes, tokens or questions of each document.
    """

    times: int
    length: int
    amounts: Floats
    sizes: Floats


@dataclass(frozen=True)
class LengthResult:
    """The value at one length, with its interval and how it differs from the trained length.

    Args:
        times: the length as a multiple of the trained one; 0 if it is not a whole multiple, or none is known.
        length: the length [tokens, or pixels of an image's side].
        value: bits per byte, accuracy ...
        interval: 95 % interval; None if there is only one document.
        degradation: how much worse than at the trained length (positive is worse), on the same documents.
        degradation_interval: its interval.
    """

    times: int
    length: int
    value: float
    interval: Interval | None
    degradation: float
    degradation_interval: Interval | None

    @property
    def is_worse(self) -> bool:
        """Whether it is significantly worse than at the trained length."""
        return self.degradation > 0 if self.degradation_interval is None else self.degradation_interval[0] > 0


@dataclass(frozen=True)
class LeftOut:
    """A length that was asked for and has no value.

    Args:
        times: the length as a multiple of the trained one, or 0.
        length: the length.
        reason: why.
    """

    times: int
    length: int
    reason: str


@dataclass(frozen=True)
class ModelResult:
    """The evaluation of one model.

    Args:
        name: its name.
        unit: name of what was measured: bits per byte, accuracy ...
        field: field of `rows` with the values.
        higher_is_better: whether higher values are better.
        trained_length: length of its training inputs; None: not known.
        trained_length_source: where that is written.
        lengths: the values, shortest first; changes are from the trained length, or from the shortest one.
        left_out: lengths without a value.
        rows: each length with the sums of each document, in the format of a study's results.
        positions: mean loss by position at the longest length [nats per token]; empty if there is none.
        extent_unit: unit of a length: tokens, or pixels of an image's side.
    """

    name: str
    unit: str
    field: str
    higher_is_better: bool
    trained_length: int | None
    trained_length_source: str
    lengths: tuple[LengthResult, ...]
    left_out: tuple[LeftOut, ...]
    rows: tuple[Mapping[str, Any], ...]
    positions: Mapping[str, Any] = field(default_factory=dict)
    extent_unit: str = "tokens"

    @property
    def reference(self) -> LengthResult:
        """The length that changes are from: the trained one, or the shortest."""
        return next((one for one in self.lengths if one.times == 1), self.lengths[0])


@dataclass(frozen=True)
class ModelDifference:
    """The paired difference between two models on the same documents.

    Args:
        first: name of the first model.
        second: name of the second.
        times: the length as a multiple of the trained one, or 0.
        length: the length that the first reads.
        difference: value of the first minus that of the second.
        interval: its 95 % interval, not corrected for other comparisons.
        p: two-sided p-value.
        adjusted: p-value corrected for all comparisons of the evaluation (Holm).
    """

    first: str
    second: str
    times: int
    length: int
    difference: float
    interval: Interval | None
    p: float
    adjusted: float

    @property
    def significant(self) -> bool:
        """Whether the two differ significantly after correction for multiple testing."""
        return self.adjusted < 1 - CONFIDENCE


@dataclass(frozen=True)
class PositionDifference:
    """The paired difference between two models on the same tokens, at some positions of the longest common length.

    Args:
        first: name of the first model.
        second: name of the second.
        start: first position, from 0.
        stop: position after the last.
        difference: value of the first minus that of the second.
        interval: its 95 % interval, not corrected for other comparisons.
        p: two-sided p-value.
        adjusted: p-value corrected for all positions and pairs of models (Holm).
    """

    first: str
    second: str
    start: int
    stop: int
    difference: float
    interval: Interval | None
    p: float
    adjusted: float


def summarise_lengths(quantity: Quantity, tables: Sequence[LengthTable]) -> tuple[LengthResult, ...]:
    """Return value, interval and change of each length; changes are from the trained length, or the shortest one.

    Args:
        quantity: what was measured.
        tables: each length, on the same documents.
    """
    if not tables:
        return ()
    first = next((one for one in tables if one.times == 1), min(tables, key=lambda one: one.length))
    return tuple(_length_result(quantity, first, one) for one in tables)


def _length_result(quantity: Quantity, first: LengthTable, table: LengthTable) -> LengthResult:
    # a paired difference, document by document; positive is worse for every quantity
    ends = ((first.amounts, first.sizes), (table.amounts, table.sizes))
    change = estimate_change(*(ends if quantity.sign > 0 else ends[::-1]))
    value, bounds = quantity.value(table.amounts, table.sizes), quantity.interval(table.amounts, table.sizes)
    return LengthResult(table.times, table.length, value, bounds, change.value, change.interval)
