"""Everything that a study measures of a model that answers the questions of a task."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ordinate.seeds import seed_of
from ordinate.study.plan import Plan
from ordinate.study.statistics import share_interval
from ordinate.task import Task
from ordinate.training.answers import answered, asked

# a slice with more different numbers than this is cut into as many ranges, each with as many questions
RANGES = 12


def measure_answers(model: nn.Module, task: Task, plan: Plan) -> dict[str, Any]:
    """The section of a result that needs the trained model: the lengths, with right answers sequence by sequence."""
    return {"lengths": [_length(model, task, plan, times) for times in sorted(plan.multiples)]}


def _length(model: nn.Module, task: Task, plan: Plan, times: int) -> dict[str, Any]:
    row: dict[str, Any] = {"times": times, "length": times * task.length, "accuracy": None}
    try:
        longer = task.longer(times)
        # the same for every run, and of no step's seed
        batch = longer.sample(torch.Generator().manual_seed(seed_of("fresh", times)), plan.fresh)
    except ValueError as error:
        return {**row, "reason": str(error)}
    right, questions = answered(model, batch, plan.precision), asked(batch)
    rights, counts = right.sum(1), questions.sum(1)
    return {
        **row,
        "length": longer.length,
        "accuracy": int(rights.sum()) / int(counts.sum()),
        "interval": share_interval(rights.double().numpy(), counts.double().numpy()),
        "right": rights.tolist(),
        "asked": counts.tolist(),
        "slices": {name: by_number(numbers, right, questions, RANGES) for name, numbers in batch.slices.items()},
    }


def by_number(numbers: Tensor, right: Tensor, questions: Tensor, ranges: int | None) -> list[dict[str, Any]]:
    """The share of right answers by a number that belongs to each question: from .. to, both included.

    Args:
        numbers: of each question.
        right: where the answer is right.
        questions: where something is asked.
        ranges: more different numbers than this are cut into as many ranges; None: each stands by itself.
    """
    numbers, right, questions = (part.reshape(len(part), -1) for part in (numbers, right, questions))
    known = np.unique(numbers[questions].numpy())
    if ranges is not None and len(known) > ranges:
        edges = np.unique(np.quantile(numbers[questions].numpy(), np.linspace(0, 1, ranges + 1)[1:], method="lower"))
    else:
        edges = known
    rows, low = [], int(known[0])
    for high in edges.tolist():
        chosen = questions & (numbers >= low) & (numbers <= high)
        rights, counts = (right & chosen).sum(1), chosen.sum(1)
        some = counts > 0
        if some.any():
            rows.append(
                {
                    "from": low,
                    "to": int(high),
                    "asked": int(counts.sum()),
                    "accuracy": int(rights.sum()) / int(counts.sum()),
                    "interval": share_interval(rights[some].double().numpy(), counts[some].double().numpy()),
                }
            )
        low = int(high) + 1
    return rows
