"""Estimates over seeds: the unit of replications on random weights and on trained models."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.finding import Estimate
from ordinate.ops.stats.bootstrap import LEVEL, mean_interval, percentiles, student_intervals


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


def over_pairs(
    name: str, values: Float[ndarray, "seeds"], null: Float[ndarray, "seeds"] | None = None, unit: str = "nats"
) -> Estimate:
    """Mean over the seeds of trained models with Student's interval: a bootstrap of six values has no tails.

    Args:
        name: the quantity.
        values: a value for each seed, of differences within a seed where arms are compared.
        null: the same for models without the effect, with its own interval; None: 0.
        unit: unit of the values.
    """
    middle, low, high = (float(x) for x in student_intervals(np.asarray(values, float)))
    other = (0.0, None, None) if null is None else tuple(float(x) for x in student_intervals(np.asarray(null, float)))
    return Estimate(
        name=name, value=middle, low=low, high=high, null=other[0], null_low=other[1], null_high=other[2], unit=unit
    )
