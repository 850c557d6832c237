from itertools import pairwise

import numpy as np
import pytest
import torch

from ordinate.core.seeds import derive_seed
from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.copy import Copy
from ordinate.data.tasks.multi_recall import MultiRecall
from ordinate.data.tasks.pathfinder import Pathfinder
from ordinate.evaluation.statistics import accuracy_interval
from ordinate.evaluation.task import MAX_BINS, evaluate_task
from ordinate.study.plan import Plan


class Oracle(torch.nn.Module):
    """Model that predicts correctly up to some position, and 0 from there on."""

    def __init__(self, vocabulary, good):
        super().__init__()
        self.vocabulary, self.good = vocabulary, good
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, ids):
        half = ids.shape[1] // 2
        said = torch.cat([ids[:, :half], ids[:, :half]], 1)
        said[:, half + self.good :] = 0
        return torch.nn.functional.one_hot(said, self.vocabulary).float() + self.weight


PLAN = Plan(task="copy", task_samples=50, eval_length_multiples=(2, 1), precision="fp32")


def test_correct_answers_are_counted_by_sequence_and_by_slice():
    task = Copy(count=4, symbols=20)
    first, second = evaluate_task(Oracle(21, 3), task, PLAN)["lengths"]
    assert (first["times"], first["length"], second["times"], second["length"]) == (1, 8, 2, 16)
    batch = task.sample(torch.Generator().manual_seed(derive_seed("fresh", 1)), 50)
    zeros = (batch.targets[:, 7:] == 0).sum(1)
    assert first["right"] == (3 + zeros).tolist()
    assert first["asked"] == [4] * 50
    assert first["accuracy"] == sum(first["right"]) / 200
    assert first["interval"] == accuracy_interval(np.array(first["right"], float), np.array(first["asked"], float))
    slices = first["slices"]["place"]
    assert [(part["from"], part["to"], part["asked"]) for part in slices] == [(n, n, 50) for n in (1, 2, 3, 4)]
    assert [part["accuracy"] for part in slices[:3]] == [1.0] * 3
    assert slices[3]["accuracy"] == pytest.approx(int(zeros.sum()) / 50)


def test_many_distinct_values_are_binned_into_ranges_that_cover_them_all():
    task = MultiRecall(length=128, pairs=16, vocabulary=256)
    (row,) = evaluate_task(Oracle(256, 0), task, PLAN.model_copy(update={"eval_length_multiples": (1,)}))["lengths"]
    parts = row["slices"]["distance"]
    assert 3 < len(parts) <= MAX_BINS
    assert sum(part["asked"] for part in parts) == sum(row["asked"])
    assert all(one["to"] < other["from"] for one, other in pairwise(parts))


def test_a_length_that_the_task_lacks_is_reported_not_dropped():
    task = Pathfinder(side=8, distractors=0)
    first, second = evaluate_task(Oracle(3, 0), task, PLAN)["lengths"]
    assert first["accuracy"] is not None
    assert second["accuracy"] is None
    assert "pathfinder has a fixed length" in second["reason"]


def test_evaluation_sequences_are_the_same_for_all_runs_and_differ_from_training():
    task = Copy(count=4, symbols=20)
    one, same = (evaluate_task(Oracle(21, 3), task, PLAN) for _ in range(2))
    assert one == same
    fresh = task.sample(torch.Generator().manual_seed(derive_seed("fresh", 1)), 50).inputs.tolist()
    for seed in range(3):
        step = task.sample(torch.Generator().manual_seed(derive_seed(seed, "batch", 0)), 50).inputs.tolist()
        assert not {tuple(row) for row in fresh} & {tuple(row) for row in step}


def test_positions_without_a_question_are_never_correct():
    batch = Copy(count=2).sample(torch.Generator(), 3)
    assert (batch.targets == IGNORE_INDEX).sum() == 6
    (row,) = evaluate_task(Oracle(33, 2), Copy(count=2), PLAN.model_copy(update={"eval_length_multiples": (1,)}))[
        "lengths"
    ]
    assert row["right"] == row["asked"]
