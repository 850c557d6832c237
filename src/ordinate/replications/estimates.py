"""Estimates over seeds, the unit on random weights and small trained models, and over texts, that on a checkpoint."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.ops.stats.bootstrap import LEVEL, mean_interval, percentiles, student_intervals, student_quantile

Statistic = Callable[[Tensor], float]


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


def over_texts(
    name: str, values: Float[Tensor, "texts"], null: Float[Tensor, "texts"] | None, seed: int, unit: str = ""
) -> Estimate:
    """Mean over texts with its interval, beside that of the null.

    Args:
        name: the quantity.
        values: a value for each text.
        null: values without the effect; None: 0.
        seed: of the bootstrap.
        unit: unit of the values.
    """
    own = mean_interval(values.double().numpy(), seed, LEVEL)
    other = None if null is None else mean_interval(null.double().numpy(), seed, LEVEL)
    ends = (0.0, None, None) if other is None else (other.value, other.low, other.high)
    return Estimate(
        name=name, value=own.value, low=own.low, high=own.high, null=ends[0], null_low=ends[1], null_high=ends[2],
        unit=unit,
    )  # fmt: skip


def of_all_texts(
    name: str,
    statistic: Statistic,
    values: Float[Tensor, "texts *rest"],
    null: tuple[Statistic, Float[Tensor, "texts *rest"]],
) -> Estimate:
    """A statistic of all texts together with its jackknife interval, beside that of the null.

        s^2 = (n - 1) / n sum over texts of (T without the text - their mean)^2,    T +- t_(n - 1) s

    A bootstrap would draw texts twice, which adds the noise of fewer texts to means over them.

    Args:
        name: the quantity.
        statistic: a number of several texts.
        values: what the texts give.
        null: the statistic without the effect, and what it is of.
    """
    (own, low, high), (other, least, most) = _jackknifed(statistic, values), _jackknifed(*null)
    return Estimate(name=name, value=own, low=low, high=high, null=other, null_low=least, null_high=most)


def _jackknifed(statistic: Statistic, values: Tensor) -> tuple[float, float, float]:
    whole, count = statistic(values), len(values)
    without = np.array([statistic(torch.cat([values[:place], values[place + 1 :]])) for place in range(count)])
    spread = float(np.sqrt((count - 1) * without.var()))
    half = student_quantile((1 + LEVEL) / 2, count - 1) * spread
    return whole, whole - half, whole + half
