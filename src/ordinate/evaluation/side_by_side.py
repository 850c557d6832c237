"""Put the results of several models on the same documents beside each other, with paired differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from ordinate.evaluation.comparison import holm
from ordinate.evaluation.quantity import Quantity
from ordinate.evaluation.result import LeftOut, LengthTable, ModelDifference, ModelResult, summarise_lengths
from ordinate.evaluation.statistics import RatioEstimate, estimate_change, estimate_difference


@dataclass(frozen=True)
class MeasuredModel:
    """What was measured of one model.

    Args:
        name: its name.
        quantity: what was measured.
        rows: each length with the sums of each document, in the format of a study's results.
        trained_length: length of its training inputs; None: not known.
        trained_length_source: where that is written.
        left_out: further lengths without a value.
        positions: mean loss by position; empty if there is none.
        extent_unit: unit of a length: tokens, or pixels.
    """

    name: str
    quantity: Quantity
    rows: Sequence[Mapping[str, Any]]
    trained_length: int | None
    trained_length_source: str
    left_out: Sequence[LeftOut] = ()
    positions: Mapping[str, Any] = field(default_factory=dict)
    extent_unit: str = "tokens"

    @property
    def tables(self) -> list[LengthTable]:
        """What was measured at each length with a value."""
        found = [(row, *self.quantity.table(row)) for row in self.rows if self.quantity.has_value(row)]
        return [LengthTable(row["times"], row["length"], amounts[None], sizes) for row, amounts, sizes in found]

    @property
    def result(self) -> ModelResult:
        """Value and interval at each length, and the change from the trained length."""
        without = [row for row in self.rows if not self.quantity.has_value(row)]
        left_out = [*self.left_out, *(LeftOut(row["times"], row["length"], row["reason"]) for row in without)]
        return ModelResult(
            name=self.name,
            unit=self.quantity.name,
            field=self.quantity.field,
            higher_is_better=self.quantity.sign < 0,
            trained_length=self.trained_length,
            trained_length_source=self.trained_length_source,
            lengths=summarise_lengths(self.quantity, self.tables),
            left_out=tuple(sorted(left_out, key=lambda one: one.length)),
            rows=tuple(row for row in self.rows if self.quantity.has_value(row)),
            positions=self.positions,
            extent_unit=self.extent_unit,
        )


def differences_of(models: Sequence[MeasuredModel]) -> tuple[ModelDifference, ...]:
    """Return the paired differences of all models at all multiples of the trained length, corrected together.

    Args:
        models: measured on the same documents, in one unit.
    """
    found: list[tuple[str, str, int, int, RatioEstimate]] = []
    for one, other in combinations(models, 2):
        others = {table.times: table for table in other.tables}
        found += [
            (one.name, other.name, table.times, table.length, _difference(table, others[table.times]))
            for table in one.tables
            if table.times in others
        ]
    return corrected(found)


def corrected(found: Sequence[tuple[str, str, int, int, RatioEstimate]]) -> tuple[ModelDifference, ...]:
    """Correct differences for multiple testing (Holm).

    Args:
        found: the names of two models, the multiple and length that the first reads, and the estimate of their
            difference.
    """
    adjusted = holm([estimate.p for *_, estimate in found])
    return tuple(
        ModelDifference(one, other, times, length, made.value, made.interval, made.p, p)
        for (one, other, times, length, made), p in zip(found, adjusted, strict=True)
    )


def _difference(one: LengthTable, other: LengthTable) -> RatioEstimate:
    if np.array_equal(one.sizes, other.sizes):
        return estimate_difference(one.amounts, other.amounts, one.sizes)
    return estimate_change((other.amounts, other.sizes), (one.amounts, one.sizes))
