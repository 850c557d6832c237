"""Report texts on the plan, the method, the data and the machine."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from ordinate.report.provenance_text import provenance_facts
from ordinate.report.read import Study
from ordinate.report.tuning_text import describe_tuning
from ordinate.study.options import FORMER_VALUES, unused_fields

Facts = list[tuple[str, list[tuple[str, str]]]]

# factor of the token embeddings and their initial standard deviation in GPT-2
GPT2 = (FORMER_VALUES["embedding_scale"], FORMER_VALUES["embedding_std"])
# shown in tables of their own
TABLE_FIELDS = ("budgets", "cells")


def subtitle(study: Study) -> str:
    """The line below the title: models, seeds, steps and batch size."""
    plan = study.plan
    seeds = "1 seed" if plan["seeds"] == 1 else f"{plan['seeds']} seeds"
    if leading := plan.get("leaders"):
        seeds += f" (the {len(leading)} leading with {study.seeds_of(leading[0])})"
    counts = set((plan.get("budgets") or {"": plan["steps"]}).values())
    steps = " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))
    return (
        f"{study.metric.models} of {plan['layers']} layers and width {plan['width']}, each trained with {seeds} "
        f"for {steps} steps of {study.metric.step(plan, study.training_data)}."
    )


def method(study: Study) -> str:
    """What the runs have in common, how learning rates were chosen, and the evaluation data."""
    plan, noun = study.plan, study.noun
    shared = {
        "params": "the same number of parameters in use at the trained length (by adapting the feed-forward width)",
        "shape": f"the same shape (the parameters of the {noun} itself come on top)",
        "flops": f"the same shape (the parameters of the {noun} itself come on top)",
    }[plan["match"]]
    steps = (
        "a number of steps that equalises floating-point operations" if plan["match"] == "flops" else "the same steps"
    )
    notes = {
        item["run"]["label"]: item["parameters"].get("note") for item in study.results if item["status"] == "done"
    }
    said = " ".join(f"{label}: {note}." for label, note in notes.items() if note)
    measured = study.metric.describe_evaluation(plan, study.training_data)
    equal = (
        f"Every {noun} sees the same batches in the same order, takes {steps}, starts from the same initial weights "
        f"where shapes agree, and has {shared}."
    )
    return " ".join(filter(None, (equal, describe_tuning(study), measured, token_embeddings(study), said)))


def token_embeddings(study: Study) -> str:
    """Say how large the token embeddings are, and by what their table is multiplied; empty if as in GPT-2."""
    made = [item["token_embeddings"] for item in study.results if "token_embeddings" in item]
    found = dict.fromkeys((one["scale"], one["std"]) for one in made)
    return " ".join(
        f"Token embeddings have standard deviation {std:g} at initialisation, from a table multiplied by {scale:.4g}."
        for scale, std in found
        if (scale, std) != GPT2
    )


def study_facts(study: Study, varied: Collection[str] = (), others: Sequence[Study] = ()) -> Facts:
    """Return plan, data, machines and versions as tables of names and values.

    Args:
        study: the results; for a grid, its first cell.
        varied: fields of the plan that are shown elsewhere.
        others: the other cells of a grid.
    """
    about, machine = study.manifest, dict(study.manifest["machine"])
    silent = unused_fields(str(study.plan.get("task", "text")), study.plan)
    if machine.get("memory_bytes"):
        machine["memory"] = f"{machine.pop('memory_bytes') / 2**30:.0f} GB"
    return [
        (
            "Plan",
            _named(
                {name: value for name, value in study.plan.items() if name not in {*silent, *TABLE_FIELDS, *varied}}
            ),
        ),
        *_learned([study, *others]),
        ("Machine", _named(machine)),
        *([("Trained on", trained)] if (trained := _trained_on([study, *others])) else []),
        *([("Made by", made)] if (made := provenance_facts([study, *others])) else []),
        ("Versions", _named({**about["versions"], "source": about["code"][:12]})),
    ]


def _learned(cells: Sequence[Study]) -> Facts:
    """Descriptions of the training data, without repetitions."""
    found: Facts = []
    for cell in cells:
        one = cell.metric.section.capitalize(), _named(cell.training_data)
        found += [one] * (one not in found)
    return found


def _trained_on(cells: Sequence[Study]) -> list[tuple[str, str]]:
    """Number of runs on each machine or set of devices."""
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
