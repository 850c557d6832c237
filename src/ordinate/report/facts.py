"""What a report says about the plan, the text and the machine."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from ordinate.report.read import Study
from ordinate.report.trials import rate_words
from ordinate.study.fields import idle

Facts = list[tuple[str, list[tuple[str, str]]]]


# told in tables of their own
HIDDEN = ("budgets", "cells")


def subtitle(study: Study) -> str:
    """One line under the title."""
    plan = study.plan
    seeds = "once" if plan["seeds"] == 1 else f"{plan['seeds']} times"
    counts = set((plan.get("budgets") or {"": plan["steps"]}).values())
    steps = " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))
    return (
        f"{study.quantity.models} of {plan['layers']} layers and width {plan['width']}, each trained {seeds} for "
        f"{steps} steps of {study.quantity.step(plan, study.learned)}."
    )


def method(study: Study) -> str:
    """What is equal between the schemes, and what was held out."""
    plan, noun = study.plan, study.noun
    shared = {
        "parameters": "the same number of parameters that training can reach (the feed-forward is made narrower or "
        "wider to match)",
        "shape": f"the same shape (a {noun}'s own parameters come on top)",
        "compute": f"the same shape (a {noun}'s own parameters come on top)",
    }[plan["equal"]]
    steps = "as many steps as make the operations equal" if plan["equal"] == "compute" else "the same steps"
    notes = {
        item["run"]["label"]: item["parameters"].get("note") for item in study.results if item["status"] == "done"
    }
    said = " ".join(f"Of {label}, {note}." for label, note in notes.items() if note)
    measured = study.quantity.measured_on(plan, study.learned)
    return (
        f"Every {noun} sees the same batches in the same order, takes {steps}, begins with the same weights "
        f"wherever sizes agree, and has {shared}. {rate_words(study)} {measured} {said}"
    ).strip()


def facts(study: Study, varied: Collection[str] = (), others: Sequence[Study] = ()) -> Facts:
    """Plan, text, machines and versions, name by name.

    Args:
        study: the results; of a grid, its first cell.
        varied: of the plan, what is told elsewhere.
        others: the further cells.
    """
    about, machine = study.about, dict(study.about["machine"])
    silent = idle(str(study.plan.get("task", "text")), study.plan)
    if machine.get("memory_bytes"):
        machine["memory"] = f"{machine.pop('memory_bytes') / 2**30:.0f} GB"
    return [
        (
            "Plan",
            _named({name: value for name, value in study.plan.items() if name not in {*silent, *HIDDEN, *varied}}),
        ),
        *_learned([study, *others]),
        ("Machine", _named(machine)),
        *([("Trained on", trained)] if (trained := _trained_on([study, *others])) else []),
        ("Versions", _named({**about["versions"], "source": about["code"][:12]})),
    ]


def _learned(cells: Sequence[Study]) -> Facts:
    """What was learned from, each once."""
    found: Facts = []
    for cell in cells:
        one = cell.quantity.section.capitalize(), _named(cell.learned)
        found += [one] * (one not in found)
    return found


def _trained_on(cells: Sequence[Study]) -> list[tuple[str, str]]:
    """How many runs were trained on what: a machine, or several devices."""
    costs = [item.get("cost", {}) for cell in cells for item in cell.results]
    found = Counter(_hardware(cost) for cost in costs if "machine" in cost)
    return [("1 run" if count == 1 else f"{count} runs", words) for words, count in found.most_common()]


def _hardware(cost: dict[str, Any]) -> str:
    several = cost.get("hardware")
    if not several:
        return cost["machine"]
    machines = f"{several['nodes']} machines with " if several["nodes"] > 1 else ""
    devices = "1 device each" if several["devices"] == 1 else f"{several['devices']} devices"
    return f"{cost['machine']}: {machines}{devices}, {several['strategy'] or 'ddp'}"


def _named(values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _text(value)) for name, value in values.items() if value is not None]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items() if number is not None)
    if isinstance(value, list | tuple):
        return ", ".join(f"{item:g}" if isinstance(item, float) else str(item) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
