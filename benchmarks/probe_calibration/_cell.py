"""The contract of a cell of the calibration: a model whose truth is known, probed in many independent draws."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import binomtest

from ordinate.core.finding import Estimate

DRAWS, DEAR_DRAWS = 2000, 200
# accepted coverage of 95 % intervals; the rate that false positives must not exceed significantly
COVERAGE, FALSE_POSITIVES = (0.91, 0.98), 0.05


@dataclass(frozen=True)
class Reading:
    """An estimate in one draw.

    Args:
        value: the estimate.
        low: lower end of its 95 % interval.
        high: upper end.
        truth: the true value; None: the expectation of the estimate, taken as its mean over all draws.
    """

    value: float
    low: float
    high: float
    truth: float | None = None

    @classmethod
    def of(cls, found: Estimate, truth: float | None = None) -> "Reading":
        """Read an estimate with an interval."""
        if found.low is None or found.high is None:
            raise ValueError(f"a reading needs an interval; {found.name} has none; leave it out")
        return cls(found.value, found.low, found.high, truth)


@dataclass(frozen=True)
class Outcome:
    """What a probe reports in one draw.

    Args:
        readings: estimates by name.
        false: for each claim that is false of the model, whether the probe makes it.
        true: for each claim that is true of the model, whether the probe makes it.
    """

    readings: Mapping[str, Reading] = field(default_factory=dict)
    false: Mapping[str, bool] = field(default_factory=dict)
    true: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One model whose truth is known.

    Args:
        model: the model and the amount of text, in a phrase.
        draw: draws data from a seed and probes them.
        draws: number of draws; DEAR_DRAWS where one takes long.
    """

    model: str
    draw: Callable[[int], Outcome]
    draws: int = DRAWS


def measured(cell: Cell, draws: int) -> list[dict[str, Any]]:
    """Return a row for each estimate and claim: the share of draws, with its exact binomial interval."""
    outcomes = [cell.draw(seed) for seed in range(draws)]
    rows = []
    for name in dict.fromkeys(name for outcome in outcomes for name in outcome.readings):
        found = [outcome.readings[name] for outcome in outcomes if name in outcome.readings]
        middle = float(np.mean([one.value for one in found]))
        truths = [middle if one.truth is None else one.truth for one in found]
        held = [one.low <= truth <= one.high for one, truth in zip(found, truths, strict=True)]
        rows.append(_row(cell, "coverage", name, held) | {"mean": middle, "truth": float(np.mean(truths))})
    for kind, claims in (
        ("false positives", [outcome.false for outcome in outcomes]),
        ("detected", [outcome.true for outcome in outcomes]),
    ):
        for name in dict.fromkeys(name for own in claims for name in own):
            rows.append(_row(cell, kind, name, [own[name] for own in claims if name in own]))
    return rows


def _row(cell: Cell, kind: str, name: str, held: list[bool]) -> dict[str, Any]:
    # Clopper and Pearson
    ends = binomtest(sum(held), len(held)).proportion_ci(0.95, "exact")
    share = sum(held) / len(held)
    accepted = {"coverage": COVERAGE[0] <= share <= COVERAGE[1], "false positives": ends.low <= FALSE_POSITIVES}
    row = {"model": cell.model, "kind": kind, "what": name, "draws": len(held), "share": share}
    return row | {"low": float(ends.low), "high": float(ends.high), "accepted": bool(accepted.get(kind, True))}
