"""Report texts and tables on learning-rate tuning, and on step counts matched in compute."""

from collections.abc import Sequence
from typing import Any

from ordinate.report.read import Study
from ordinate.study.run import describe_cell

# longer lists are not spelt out
MAX_LISTED = 4


def tuning_warning(studies: Sequence[Study]) -> list[str]:
    """Return a warning about best learning rates at an end of the tuned range; empty if there are none.

    Args:
        studies: one study, or the cells of a grid.
    """
    found = [(study, label, choice) for study in studies for label, choice in tuning_records(study).items()]
    edges = [one for one in found if one[2]["edge"]]
    if not edges:
        return []
    listed = [f"{_where(study)}“{label}” ({choice['edge']}, {choice['rate']:.3g})" for study, label, choice in edges]
    which = f": {', '.join(listed)}" if len(listed) <= MAX_LISTED else ", see below"
    return [
        f"For {len(edges)} of {len(found)} the best learning rate is at an end of the tuned range, so a better one "
        f"may lie outside it{which}."
    ]


def tuning_records(study: Study) -> dict[str, dict[str, Any]]:
    """The tuning record of each label: the chosen learning rate and the losses of all."""
    done = {label: [run for run in study.finished(label) if "tuning" in run] for label in study.arms}
    return {label: runs[0]["tuning"] for label, runs in done.items() if runs}


def describe_tuning(study: Study) -> str:
    """Describe how learning rates were chosen."""
    plan = study.plan
    if not plan.get("tune_lr"):
        return (
            f"The learning rate, {plan['learning_rate']:g}, is the same for all and not tuned."
            if "learning_rate" in plan
            else ""
        )
    times = "1 seed" if plan["tune_seeds"] == 1 else f"{plan['tune_seeds']} seeds"
    return (
        f"The learning rate of each {study.noun} is tuned under an equal budget: each of {len(plan['tune_lr'])} "
        f"rates was tried with {times}, for {plan['tune_fraction']:.0%} of the steps. Tuning uses seeds that no "
        "reported run has, and selects by the loss on a tuning split: a tenth of the training data, or freshly "
        "generated sequences; reported results do not use it."
    )


def rate_table(study: Study) -> dict[str, Any] | None:
    """The tuning loss by label and learning rate; None without tuning."""
    rates = study.plan.get("tune_lr")
    if not rates:
        return None
    rows = []
    for label in study.arms:
        found: dict[float, list[dict[str, Any]]] = {rate: [] for rate in rates}
        for trial in study.trials:
            if trial["run"]["label"] == label and trial["run"]["rate"] in found:
                found[trial["run"]["rate"]].append(trial)
        taken = tuning_records(study).get(label, {}).get("rate")
        cells = [{"value": _losses(trials), "best": rate == taken} for rate, trials in found.items()]
        rows.append({"label": label, "cells": cells})
    return {"heads": [f"{rate:.3g}" for rate in rates], "rows": rows}


def steps_table(study: Study) -> list[tuple[str, int]] | None:
    """The number of steps of each label; None if all have the same."""
    budgets = study.plan.get("budgets")
    return [(label, budgets[label]) for label in study.arms if label in budgets] if budgets else None


def _losses(trials: Sequence[dict[str, Any]]) -> str:
    if not trials:
        return "pending"
    whole = [trial["aside"] for trial in trials if trial["status"] == "done"]
    if len(whole) < len(trials):
        return next(trial["status"] for trial in trials if trial["status"] != "done")
    return f"{sum(whole) / len(whole):.3f}"


def _where(study: Study) -> str:
    values = study.manifest.get("values")
    return f"{describe_cell(values)}: " if values else ""
