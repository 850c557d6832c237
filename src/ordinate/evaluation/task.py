"""Evaluate a model on a synthetic task: accuracy by length, and by properties of the questions."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ordinate.core.seeds import derive_seed
from ordinate.data.task import Task
from ordinate.evaluation.prediction import has_target, is_correct
from ordinate.evaluation.quantity import ACCURACY
from ordinate.evaluation.settings import EvaluationSettings
from ordinate.evaluation.statistics import accuracy_interval

# a slice with more distinct values than this is binned into as many quantile ranges
MAX_BINS = 12


def evaluate_task(model: nn.Module, task: Task, plan: EvaluationSettings) -> dict[str, Any]:
    """Evaluate on newly generated sequences; returns `lengths`, with correct answers of each sequence."""
    return {"lengths": [_length(model, task, plan, times) for times in sorted(plan.eval_length_multiples)]}


def _length(model: nn.Module, task: Task, plan: EvaluationSettings, times: int) -> dict[str, Any]:
    row: dict[str, Any] = {"times": times, "length": times * task.length, "accuracy": None}
    try:
        longer = task.longer(times)
        # the same for every run; the seed differs from those of training steps
        batch = longer.sample(torch.Generator().manual_seed(derive_seed("fresh", times)), plan.task_samples)
    except ValueError as error:
        return {**row, "reason": str(error)}
    right, questions = is_correct(model, batch, plan.precision), has_target(batch)
    rights, counts = right.sum(1), questions.sum(1)
    return {
        **row,
        "length": longer.length,
        "accuracy": int(rights.sum()) / int(counts.sum()),
        "interval": ACCURACY.interval(rights.double().numpy(), counts.double().numpy()),
        "right": rights.tolist(),
        "asked": counts.tolist(),
        "slices": {name: accuracy_by(numbers, right, questions, MAX_BINS) for name, numbers in batch.slices.items()},
    }


def accuracy_by(numbers: Tensor, right: Tensor, questions: Tensor, ranges: int | None) -> list[dict[str, Any]]:
    """Accuracy by a number that belongs to each question, in ranges from .. to, both included.

    Args:
        numbers: the number of each question.
        right: where the answer is correct.
        questions: where there is a question.
        ranges: bin more than this many distinct numbers into quantile ranges; None: one range for each number.
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
                    "interval": accuracy_interval(rights[some].double().numpy(), counts[some].double().numpy()),
                }
            )
        low = int(high) + 1
    return rows
