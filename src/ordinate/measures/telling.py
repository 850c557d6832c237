"""Numbers of texts as a finding tells them: with their intervals."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.finding import Estimate, Line, Panel
from ordinate.ops.bootstrap import mean_interval, mean_intervals


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


def said(estimate: Estimate, digits: int = 3) -> str:
    """A number in a sentence, with its interval and unit."""
    sure = f" [{estimate.low:.{digits}g}, {estimate.high:.{digits}g}]" if estimate.low is not None else ""
    return f"{estimate.value:.{digits}g}{sure} {estimate.unit}".rstrip()


def panel_of(name: str, matrix: Float[ndarray, "rows columns"], side: int = 64, note: str = "") -> Panel:
    """A matrix as a picture shows it: of a large one, the means of blocks."""
    rows, columns = (
        np.unique(np.linspace(0, size, min(size, side) + 1).round().astype(int)) for size in matrix.shape
    )
    summed = np.add.reduceat(np.add.reduceat(np.asarray(matrix, float), rows[:-1], 0), columns[:-1], 1)
    means = summed / np.diff(rows)[:, None] / np.diff(columns)
    values = tuple(tuple(row) for row in means.tolist())
    return Panel(name=name, values=values, whole=(matrix.shape[0], matrix.shape[1]), note=note)
