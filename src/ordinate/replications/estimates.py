"""Estimates over seeds: the unit of replications on random weights."""

from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from ordinate.core.finding import Estimate
from ordinate.ops.stats.bootstrap import LEVEL, mean_interval, percentiles


def over_seeds(name: str, values: Sequence[float] | ndarray, null: Sequence[float] | ndarray, seed: int) -> Estimate:
    """Mean over seeds with its interval, beside the central 95 % of the null's values.

    Args:
        name: the quantity.
        values: a value for each seed.
        null: values without the effect.
        seed: of the bootstrap.
    """
    mean, other = mean_interval(np.asarray(values, float), seed, LEVEL), np.asarray(null, float)
    low, high = percentiles(other)
    return Estimate(
        name=name,
        value=mean.value,
        low=mean.low,
        high=mean.high,
        null=float(other.mean()),
        null_low=float(low),
        null_high=float(high),
    )
