"""Formatting: per-text numbers as estimates, lines, heatmaps and phrases with confidence intervals."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.finding import Estimate, Heatmap, Line
from ordinate.ops.stats.bootstrap import LEVEL, mean_interval, mean_intervals, student_intervals
from ordinate.ops.stats.variance_components import ShareEstimate
from ordinate.probing.measures.samples import Sample

RELATIVE_UNIT = "of its norm"
"""Unit of changes of vectors: relative to the norm of the unchanged vector."""
VARIANCE_UNIT = "of the variance"


def mean_estimate(
    name: str,
    values: Float[ndarray, "texts"],
    seed: int,
    unit: str,
    null: float | None = 0.0,
    level: float = LEVEL,
) -> Estimate:
    """Mean over texts with its confidence interval."""
    mean = mean_interval(values, seed, level)
    return Estimate(name=name, value=mean.value, low=mean.low, high=mean.high, null=null, unit=unit)


def group_estimate(name: str, values: Float[ndarray, "groups"], unit: str, null: float | None = 0.0) -> Estimate:
    """Mean over a few groups of texts with its confidence interval."""
    middle, low, high = (float(x) for x in student_intervals(values))
    ends = {} if np.isnan(low) else {"low": low, "high": high}
    return Estimate(name=name, value=middle, null=null, unit=unit, **ends)


def share_estimate(name: str, found: ShareEstimate) -> Estimate:
    """Share of the variance with its confidence interval."""
    return Estimate(name=name, value=found.value, low=found.low, high=found.high, null=0.0, unit=VARIANCE_UNIT)


def mean_line(
    name: str, across: Sequence[float], values: Float[ndarray, "texts n"], seed: int, null: bool = False
) -> Line:
    """Mean over texts at each x as a line with a confidence band."""
    middle, low, high = mean_intervals(values, seed)
    places = tuple(float(place) for place in across)
    if np.isnan(low).any():
        return Line(name=name, x=places, y=tuple(middle.tolist()), null=null)
    ends = {"low": tuple(low.tolist()), "high": tuple(high.tolist())}
    return Line(name=name, x=places, y=tuple(middle.tolist()), **ends, null=null)


def interval_line(
    name: str, across: Sequence[float], found: Sequence[tuple[float, float, float]], null: bool = False
) -> Line:
    """Values with the ends of their intervals at each x as a line with a confidence band."""
    middle, low, high = (tuple(map(float, column)) for column in zip(*found, strict=True))
    return Line(name=name, x=tuple(map(float, across)), y=middle, low=low, high=high, null=null)


def format_value(estimate: Estimate) -> str:
    """Format a value with its interval: '0.71 [0.68, 0.74]'."""
    value, low, high = estimate.formatted
    return f"{value} [{low}, {high}]" if low else value


def format_estimate(estimate: Estimate) -> str:
    """Format a value with its unit and interval: '0.71 of its norm [0.68, 0.74]'."""
    value, low, high = estimate.formatted
    return f"{value} {estimate.unit}".rstrip() + (f" [{low}, {high}]" if low else "")


def format_percent(share: float) -> str:
    """Format a share in whole per cent, without a negative zero."""
    return f"{100 * share:z.0f} %"


def describe_effects(arms: Mapping[str, Estimate]) -> str:
    """Describe the effects of interventions in one phrase: the loss increase or output change of each.

    Args:
        arms: description of each intervention, and the increase; empty: an empty string.
    """
    phrases: list[str] = []
    for what, rise in arms.items():
        if phrases:
            phrases.append(f"{what} by {format_value(rise)}")
            continue
        sure = rise.low is not None and rise.low > 0
        loss = f"{'raises' if sure else 'changes'} the loss"
        phrases.append(
            f"{what} {'changes the output' if rise.unit == RELATIVE_UNIT else loss} by {format_estimate(rise)}"
        )
    return ", ".join(phrases)


def heatmap_of(name: str, matrix: Float[ndarray, "rows columns"], side: int = 64, note: str = "") -> Heatmap:
    """Heatmap of a matrix; a large matrix is reduced to block means."""
    rows, columns = (
        np.unique(np.linspace(0, size, min(size, side) + 1).round().astype(int)) for size in matrix.shape
    )
    summed = np.add.reduceat(np.add.reduceat(np.asarray(matrix, float), rows[:-1], 0), columns[:-1], 1)
    means = summed / np.diff(rows)[:, None] / np.diff(columns)
    values = tuple(tuple(row) for row in means.tolist())
    return Heatmap(name=name, values=values, whole=(matrix.shape[0], matrix.shape[1]), note=note)


def sample_caveats(samples: Sequence[Sample], missing: Mapping[str, str]) -> tuple[str, ...]:
    """Caveats on what was left out of the samples, and on what could not be measured.

    Args:
        samples: the samples of a probe.
        missing: the reason of each measurement that was not possible.
    """
    notes = (note for sample in samples for note in sample.subsampling_notes)
    return (*notes, *(f"Not measured, {what}: {reason}." for what, reason in missing.items()))


def too_few_samples(few: Sample, need: str) -> str:
    """Error message for too few texts, with what the budget left out."""
    return " ".join([f"{need}; got {few.count}; pass more, or a larger budget.", *few.subsampling_notes])
