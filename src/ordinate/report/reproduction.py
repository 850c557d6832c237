"""Comparison of a run with the same run trained again: to the bit, or within what rounding changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ordinate.report.metric import Metric, metric_of

# mean absolute difference of training losses [nats] that rounding may cause from step FULL_TOLERANCE on; before, the
# differences still grow. docs/study.md has the measurements: by rounding at most 0.021, between seeds at least 0.059
LOSS_TOLERANCE, FULL_TOLERANCE = 0.03, 50
# sections of a result that say what a run was made by, or what it cost
NOT_MEASURED = ("format", "run", "message", "provenance", "cost")
# libraries that draw the report, and change no result
REPORT_ONLY = ("altair",)

Outcome = Literal["bit", "close", "different"]
Conditions = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison.

    Args:
        outcome: `bit`: everything is equal; `close`: within the tolerance, where conditions differ; `different`.
        answer: the answer, in a sentence.
        details: lines on conditions, losses and values.
    """

    outcome: Outcome
    answer: str
    details: list[str]


def compare(
    study: Mapping[str, Any],
    plan: Mapping[str, Any],
    stored: Mapping[str, Any],
    again: Mapping[str, Any],
    now: Conditions,
    steps: int | None = None,
    tolerance: float | None = None,
) -> Comparison:
    """Compare a result with that of the same run trained again.

    Args:
        study: the contents of study.json.
        plan: the plan of the run.
        stored: the result in the study.
        again: the new result; of its first steps, only `training`.
        now: what the new result was made by.
        steps: number of first steps that are compared; None: the whole run.
        tolerance: mean absolute difference of the training losses that rounding may cause [nats]; None: that of a
            study, which grows with the steps up to LOSS_TOLERANCE.
    """
    differing, unknown = _conditions(_made_by(study, plan, stored), now)
    if steps is not None and "training" in stored:
        stored = {"status": "done", "training": {name: row[:steps] for name, row in stored["training"].items()}}
    unequal, count = _unequal(stored, again)
    losses, values = _losses(stored, again, tolerance), _values(metric_of(plan), stored, again)
    lines = [
        *([f"what differs: {'; '.join(differing)}"] if differing else []),
        *([f"not known of the stored run: {', '.join(unknown)}"] if unknown else []),
        *losses.lines,
        *values.lines,
        *_not_compared(stored, again, steps),
    ]
    if not unequal:
        return Comparison("bit", f"reproduced to the bit: {_extent(stored, count, steps)}", lines)
    if stored["status"] != again["status"]:
        last = (str(again.get("message", "")).strip().splitlines() or [""])[-1]
        told = f"not reproduced: the run is {stored['status']} in the study, {again['status']} here"
        return Comparison("different", f"{told}{last and f' ({last})'}", lines)
    if not differing and not unknown:
        told = f"not reproduced: not equal to the bit, though nothing differs that is known; first in {unequal[0]}"
        return Comparison("different", told, lines)
    if not losses.close or not values.close:
        return Comparison("different", f"not reproduced: {values.told if not values.close else losses.told}", lines)
    why = f"{differing[0].partition(':')[0]} differs" if differing else f"{unknown[0]} of the stored run is not known"
    return Comparison("close", f"reproduced {values.told or losses.told}; {why}", lines)


@dataclass(frozen=True)
class _Agreement:
    """Agreement of one kind of numbers: whether it is within the tolerance, a phrase, and lines of detail."""

    close: bool = True
    told: str = ""
    lines: Sequence[str] = ()


def _losses(stored: Mapping[str, Any], again: Mapping[str, Any], tolerance: float | None) -> _Agreement:
    if "training" not in stored or "training" not in again:
        return _Agreement()
    one, other = (np.array(result["training"]["loss"], float) for result in (stored, again))
    if len(one) != len(other):
        return _Agreement(False, f"{len(other)} steps here, {len(one)} in the study")
    apart = np.abs(one - other)
    if not apart.any():
        return _Agreement()
    mean = float(apart.mean())
    limit = LOSS_TOLERANCE * min(1, len(one) / FULL_TOLERANCE) ** 2 if tolerance is None else tolerance
    close = mean <= limit
    told = f"{'within' if close else 'losses differ by'} {mean:.2g} nats a step on average (tolerance {limit:.2g})"
    first, worst = int(np.argmax(apart > 0)), int(np.argmax(apart))
    line = (
        f"losses: apart from step {first + 1} on, by {mean:.2g} nats on average (tolerance {limit:.2g}), "
        f"at most by {apart[worst]:.2g} at step {worst + 1}"
    )
    return _Agreement(close, told, [line])


def _values(kind: Metric, stored: Mapping[str, Any], again: Mapping[str, Any]) -> _Agreement:
    """Compare the metric at each length; only the trained length decides, beyond it models are not stable."""
    pairs = [
        (row["times"], *(_level(kind, one) for one in (row, other)))
        for row, other in zip(stored.get("lengths", ()), again.get("lengths", ()), strict=False)
        if kind.has_value(row) and kind.has_value(other)
    ]
    if not pairs or all(one == other for _, one, other in pairs):
        return _Agreement()
    lines = [
        f"{kind.name} at {times} times the trained {kind.extent}: {other:.4f} here, {one:.4f} in the study"
        for times, one, other in pairs
    ]
    _, one, other = pairs[0]
    close = abs(one - other) <= kind.tolerance
    if close:
        told = f"within {_rounded_up(abs(one - other))} {kind.name} (tolerance {kind.tolerance:g})"
    else:
        told = f"{other:.4f} {kind.name} here, {one:.4f} in the study (tolerance {kind.tolerance:g})"
    return _Agreement(close, told, lines)


def _level(kind: Metric, row: Mapping[str, Any]) -> float:
    amounts, sizes = kind.table(row)
    return float(amounts.sum() / sizes.sum())


def _rounded_up(number: float) -> str:
    return f"{np.ceil(number * 1000) / 1000:.3f}"


def _made_by(study: Mapping[str, Any], plan: Mapping[str, Any], stored: Mapping[str, Any]) -> Conditions:
    """What a run was made by; of earlier versions' results only the study says it."""
    if "provenance" in stored:
        return dict(stored["provenance"])
    if "resumed_by" in study:
        return {}
    machine = study.get("machine", {})
    known = {"code": study.get("code"), "versions": study.get("versions", {}), "threads": plan.get("threads")}
    return {**known, "python": machine.get("python"), "processor": machine.get("processor")}


def _conditions(then: Conditions, now: Conditions) -> tuple[list[str], list[str]]:
    """Return what differs, as "name: then -> now", and the names of what is not known of then."""
    before, after = (_flat(one) for one in (then, now))
    unknown = [name for name in after if before.get(name) is None]
    differing = [
        f"{name}: {before[name]} -> {value}"
        for name, value in after.items()
        if name not in unknown and before[name] != value
    ]
    return differing, unknown


def _flat(made_by: Conditions) -> Conditions:
    libraries = {name: one for name, one in made_by.get("versions", {}).items() if name not in REPORT_ONLY}
    code = made_by.get("code")
    rest = {name: made_by.get(name) for name in ("python", "processor", "instructions", "threads")}
    return {"code": code and str(code)[:12], **libraries, **rest}


def _unequal(stored: Mapping[str, Any], again: Mapping[str, Any]) -> tuple[list[str], int]:
    """Return the names of values that differ, and how many were compared: those that both results have."""
    found = [
        one
        for section in stored
        if section in again and section not in NOT_MEASURED
        for one in _leaves(stored[section], again[section], section)
    ]
    return [name for name, equal in found if not equal], len(found)


def _leaves(one: Any, other: Any, name: str) -> Iterator[tuple[str, bool]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() & other.keys():
            yield from _leaves(one[key], other[key], f"{name}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, pair in enumerate(zip(one, other, strict=True)):
            yield from _leaves(*pair, f"{name}[{place}]")
    else:
        yield name, one == other


def _extent(stored: Mapping[str, Any], count: int, steps: int | None) -> str:
    if steps is not None:
        return f"the losses of the first {steps} steps"
    if stored["status"] == "diverged":
        return f"it diverges at step {stored['step']}, as in the study"
    weights = ", the final weights" if "weights_sha256" in stored else ""
    return f"all {len(stored.get('training', {}).get('loss', ()))} losses{weights} and {count:,} values in all"


def _not_compared(stored: Mapping[str, Any], again: Mapping[str, Any], steps: int | None) -> list[str]:
    if steps is not None:
        return ["not compared: weights and evaluation, as only the first steps were trained"]
    missing = [name.removesuffix("_sha256") for name in again if name not in stored and name not in NOT_MEASURED]
    return [f"not compared, as the stored result has none: {', '.join(missing)}"] if missing else []
