"""Numbers of texts as a finding tells them: with their intervals."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.finding import Estimate, Line, Panel
from ordinate.measures.presenting import Sample
from ordinate.ops.bootstrap import mean_interval, mean_intervals

OF_LENGTH = "of its length"
"""What changes of vectors are counted in: the length of what they were."""


def estimate_of(
    name: str, values: Float[ndarray, "texts"], seed: int, unit: str, null: float | None = 0.0
) -> Estimate:
    """The mean over texts as an estimate."""
    mean = mean_interval(values, seed)
    return Estimate(name=name, value=mean.value, low=mean.low, high=mean.high, null=null, unit=unit)


def line_of(
    name: str, across: Sequence[float], values: Float[ndarray, "texts n"], seed: int, null: bool = False
) -> Line:
    """The mean over texts at each place as a line with a band."""
    middle, low, high = mean_intervals(values, seed)
    places = tuple(float(place) for place in across)
    if np.isnan(low).any():
        return Line(name=name, x=places, y=tuple(middle.tolist()), null=null)
    ends = {"low": tuple(low.tolist()), "high": tuple(high.tolist())}
    return Line(name=name, x=places, y=tuple(middle.tolist()), **ends, null=null)


def short(estimate: Estimate) -> str:
    """A number in a sentence, with its interval."""
    value, low, high = estimate.written
    return f"{value} [{low}, {high}]" if low else value


def said(estimate: Estimate) -> str:
    """A number in a sentence, with its unit and interval."""
    value, low, high = estimate.written
    return f"{value} {estimate.unit}".rstrip() + (f" [{low}, {high}]" if low else "")


def percent(share: float) -> str:
    """A share in a sentence, whole per cents; a little below nothing is nothing."""
    return f"{100 * share:z.0f} %"


def costs(arms: Mapping[str, Estimate]) -> str:
    """What it costs to do something to a model: what is done, in words, and the rise; empty where nothing is."""
    told: list[str] = []
    for what, rise in arms.items():
        if told:
            told.append(f"{what} by {short(rise)}")
            continue
        sure = rise.low is not None and rise.low > 0
        loss = f"{'raises' if sure else 'changes'} the loss"
        told.append(f"{what} {'changes the output' if rise.unit == OF_LENGTH else loss} by {said(rise)}")
    return ", ".join(told)


def panel_of(name: str, matrix: Float[ndarray, "rows columns"], side: int = 64, note: str = "") -> Panel:
    """A matrix as a picture shows it: of a large one, the means of blocks."""
    rows, columns = (
        np.unique(np.linspace(0, size, min(size, side) + 1).round().astype(int)) for size in matrix.shape
    )
    summed = np.add.reduceat(np.add.reduceat(np.asarray(matrix, float), rows[:-1], 0), columns[:-1], 1)
    means = summed / np.diff(rows)[:, None] / np.diff(columns)
    values = tuple(tuple(row) for row in means.tolist())
    return Panel(name=name, values=values, whole=(matrix.shape[0], matrix.shape[1]), note=note)


def lacking(few: Sample, need: str) -> str:
    """That there are too few texts for what needs more, and whether the budget left some out."""
    return " ".join([f"{need}; there are {few.texts}; give more, or a larger budget.", *few.left_out])
