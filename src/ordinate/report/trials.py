"""What a report says of learning rates that were tried, and of steps that were made equal in compute."""

from collections.abc import Sequence
from typing import Any

from ordinate.report.read import Study
from ordinate.study.run import described

# more than so many are not named one by one
NAMED = 4


def tuning_said(studies: Sequence[Study]) -> list[str]:
    """A sentence on learning rates that are the best of a list where it ends; none where there are none.

    Args:
        studies: a study, or the cells of a grid.
    """
    found = [(study, label, choice) for study in studies for label, choice in choices(study).items()]
    edges = [one for one in found if one[2]["edge"]]
    if not edges:
        return []
    listed = [f"{_where(study)}“{label}” ({choice['edge']}, {choice['rate']:.3g})" for study, label, choice in edges]
    which = f": {', '.join(listed)}" if len(listed) <= NAMED else ", see below"
    return [
        f"For {len(edges)} of {len(found)} the best learning rate lies at an end of those tried, so a better one "
        f"may lie beyond{which}."
    ]


def choices(study: Study) -> dict[str, dict[str, Any]]:
    """The learning rate that each took, and all that were tried."""
    done = {label: [run for run in study.done(label) if "tuning" in run] for label in study.compared}
    return {label: runs[0]["tuning"] for label, runs in done.items() if runs}


def rate_words(study: Study) -> str:
    """How learning rates were come by."""
    plan = study.plan
    if not plan.get("tune"):
        return (
            f"The learning rate, {plan['learning_rate']:g}, is shared, not tuned." if "learning_rate" in plan else ""
        )
    times = "once" if plan["trials"] == 1 else f"{plan['trials']} times"
    return (
        f"The learning rate of each {study.noun} is tuned under an equal budget: each of {len(plan['tune'])} rates "
        f"was tried {times}, for {plan['trial_share']:.0%} of the steps, from seeds that no reported run has, and "
        "chosen by the loss on what was set aside: a tenth of what is learned from, or sequences drawn afresh, and "
        "nothing that is reported on."
    )


def rate_table(study: Study) -> dict[str, Any] | None:
    """The loss of every learning rate for each; None where none were tried."""
    rates = study.plan.get("tune")
    if not rates:
        return None
    rows = []
    for label in study.compared:
        found: dict[float, list[dict[str, Any]]] = {rate: [] for rate in rates}
        for trial in study.trials:
            if trial["run"]["label"] == label and trial["run"]["rate"] in found:
                found[trial["run"]["rate"]].append(trial)
        taken = choices(study).get(label, {}).get("rate")
        cells = [{"value": _losses(trials), "best": rate == taken} for rate, trials in found.items()]
        rows.append({"label": label, "cells": cells})
    return {"heads": [f"{rate:.3g}" for rate in rates], "rows": rows}


def steps_table(study: Study) -> list[tuple[str, int]] | None:
    """The steps of each; None where all take as many."""
    budgets = study.plan.get("budgets")
    return [(label, budgets[label]) for label in study.compared if label in budgets] if budgets else None


def _losses(trials: Sequence[dict[str, Any]]) -> str:
    if not trials:
        return "pending"
    whole = [trial["aside"] for trial in trials if trial["status"] == "done"]
    if len(whole) < len(trials):
        return next(trial["status"] for trial in trials if trial["status"] != "done")
    return f"{sum(whole) / len(whole):.3f}"


def _where(study: Study) -> str:
    values = study.about.get("values")
    return f"{described(values)}: " if values else ""
