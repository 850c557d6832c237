"""A measured number with its interval, as results have it."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from torch import Tensor

from ordinate.ops.stats.bootstrap import student_intervals


class Number(TypedDict):
    """A number; `low` and `high` are the ends of its 95 % interval, None where it is exact or a single case."""

    value: float
    low: float | None
    high: float | None
    unit: str


Numbers = dict[str, Number]


def exact(value: float, unit: str = "") -> Number:
    """A number without an interval."""
    return {"value": float(value), "low": None, "high": None, "unit": unit}


def averaged(values: Sequence[float], unit: str = "") -> Number:
    """The mean of independent cases with Student's interval."""
    middle, low, high = student_intervals(np.asarray(values, dtype=np.float64))
    return {"value": float(middle), "low": float(low), "high": float(high), "unit": unit}


def change(before: Tensor, after: Tensor) -> Number:
    """Relative change of a tensor."""
    return exact(float((after - before).detach().norm() / before.detach().norm()), "of its norm")
