"""Matched compute: total FLOPs agree to half a step, and counts agree with the operations executed."""

import os

import pytest
import torch
from torch import nn

from ordinate.ops.native.build import ENV_VARIABLE
from ordinate.study.flops import FlopCounter, flops_per_sequence, matched_steps
from ordinate.study.model_sizing import ModelSizing, shape_of
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.run import Run

SMALL = {"layers": 1, "heads": 2, "width": 16, "length": 24, "steps": 300, "precision": "fp32", "match": "flops"}


def counted(step):
    with FlopCounter() as counter:
        step()
    return counter.total


def test_matrix_products_count_two_flops_per_multiply_add():
    layer, x = nn.Linear(5, 7, bias=False), torch.randn(3, 5)
    assert counted(lambda: layer(x)) == 2 * 3 * 5 * 7
    # the backward pass computes the gradient of the weight only
    assert counted(lambda: layer(x).sum().backward()) >= 2 * 2 * 3 * 5 * 7


def test_other_operations_count_output_elements_and_views_nothing():
    x, lines = torch.randn(4, 6), torch.randn(2, 16)
    assert counted(lambda: x + 1) == 24
    assert counted(lambda: x.T.reshape(4, 6)[1:].view(18)) <= 24
    assert counted(lambda: x.t()) == 0
    assert counted(lambda: torch.fft.rfft(lines)) == 5 * 32 * 4


@pytest.mark.parametrize("mixer", ["softmax", "linear", "lstm", "h3"])
def test_total_flops_agree_to_half_a_step(mixer):
    plan = resolve(Plan(schemes=("none",), mixers=tuple(dict.fromkeys(("softmax", mixer))), **SMALL))
    plain = flops_per_sequence(plan, shape_of(plan, plan.runs_for_seed({}, 0)[0], 256))
    for run in plan.runs():
        each = flops_per_sequence(plan, shape_of(plan, run, 256))
        assert abs(plan.for_run(run).steps * each - plan.steps * plain) <= each / 2
    assert plan.budgets[plan.runs_for_seed({}, 0)[0].label] == plan.steps


def test_more_flops_per_step_give_fewer_steps_and_a_proportional_warmup():
    plan = resolve(Plan(schemes=("none", "shaw"), **SMALL))
    none, shaw = plan.runs()
    assert plan.for_run(shaw).steps < plan.for_run(none).steps == plan.steps
    assert plan.for_run(shaw).warmup_steps == round(plan.warmup_steps * plan.for_run(shaw).steps / plan.steps)
    # sizes do not change
    shapes = [shape_of(plan, run, 256).hidden_width for run in (none, shaw)]
    assert shapes[0] == shapes[1]


def test_flops_grow_faster_than_the_sequence_length(monkeypatch):
    monkeypatch.setenv(ENV_VARIABLE, "on")
    plan = Plan(**SMALL)
    run = Run(label="", scheme="none", mixer="softmax", seed=0)
    costs = [
        flops_per_sequence(long, shape_of(long, run, 256)) for long in (plan, plan.model_copy(update={"length": 96}))
    ]
    assert costs[1] > 4 * costs[0]
    assert os.environ[ENV_VARIABLE] == "on"


def test_without_matched_compute_no_flops_are_counted():
    plan = Plan(**SMALL | {"match": "shape"})
    assert matched_steps(plan, ModelSizing(plan, 256)) is None
