"""Compute is equal to within half a step of each, and what is counted is what is computed."""

import os

import pytest
import torch
from torch import nn

from ordinate.native.build import SWITCH
from ordinate.study.budget import Operations, budgets, operations
from ordinate.study.model import shape_of
from ordinate.study.plan import Plan
from ordinate.study.run import Run
from ordinate.study.settle import settle

SMALL = {"layers": 1, "heads": 2, "width": 16, "length": 24, "steps": 300, "precision": "fp32", "equal": "compute"}


def counted(step):
    with Operations() as counter:
        step()
    return counter.total


def test_products_count_two_for_each_multiplication_and_addition():
    layer, x = nn.Linear(5, 7, bias=False), torch.randn(3, 5)
    assert counted(lambda: layer(x)) == 2 * 3 * 5 * 7
    # backwards the gradient of the weight alone is asked for; it is kept as it comes
    assert counted(lambda: layer(x).sum().backward()) >= 2 * 2 * 3 * 5 * 7


def test_other_operations_count_what_they_make_and_views_nothing():
    x, lines = torch.randn(4, 6), torch.randn(2, 16)
    assert counted(lambda: x + 1) == 24
    assert counted(lambda: x.T.reshape(4, 6)[1:].view(18)) <= 24
    assert counted(lambda: x.t()) == 0
    assert counted(lambda: torch.fft.rfft(lines)) == 5 * 32 * 4


@pytest.mark.parametrize("mixer", ["softmax", "linear", "lstm", "h3"])
def test_compute_is_equal_to_half_a_step(mixer):
    plan = settle(Plan(schemes=("none",), mixers=tuple(dict.fromkeys(("softmax", mixer))), **SMALL))
    plain = operations(plan, shape_of(plan, plan.own_runs({}, 0)[0], 256))
    for run in plan.runs():
        each = operations(plan, shape_of(plan, run, 256))
        assert abs(plan.of(run).steps * each - plan.steps * plain) <= each / 2
    assert plan.budgets[plan.own_runs({}, 0)[0].label] == plan.steps


def test_what_costs_more_takes_fewer_steps_and_warms_up_as_long_a_share():
    plan = settle(Plan(schemes=("none", "shaw"), **SMALL))
    none, shaw = plan.runs()
    assert plan.of(shaw).steps < plan.of(none).steps == plan.steps
    assert plan.of(shaw).warmup == round(plan.warmup * plan.of(shaw).steps / plan.steps)
    # sizes are left alone
    shapes = [shape_of(plan, run, 256).hidden_width for run in (none, shaw)]
    assert shapes[0] == shapes[1]


def test_longer_sequences_cost_more_than_so_many_times(monkeypatch):
    monkeypatch.setenv(SWITCH, "on")
    plan = Plan(**SMALL)
    run = Run(label="", scheme="none", mixer="softmax", seed=0)
    costs = [operations(long, shape_of(long, run, 256)) for long in (plan, plan.model_copy(update={"length": 96}))]
    assert costs[1] > 4 * costs[0]
    assert os.environ[SWITCH] == "on"


def test_where_steps_are_equal_nothing_is_counted():
    assert budgets(Plan(**SMALL | {"equal": "shape"}), 256) is None
