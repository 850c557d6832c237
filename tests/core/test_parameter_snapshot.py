import pytest
import torch
from torch import nn
from torch.nn.utils import vector_to_parameters

from ordinate.core import parameter_snapshot
from ordinate.core.parameter_snapshot import ParameterSnapshot


def step(module, optimiser=torch.optim.SGD, **options):
    for x in module.parameters():
        x.grad = torch.ones_like(x)
    optimiser(module.parameters(), lr=0.1, **options).step()


def average(module):
    """As an exponential moving average writes its weights, after a step of the model in training."""
    step(nn.Linear(2, 2))
    for x in module.parameters():
        x.data.mul_(0.5)


CHANGES = {
    "SGD": step,
    "fused SGD": lambda module: step(module, fused=True),
    "fused AdamW": lambda module: step(module, torch.optim.AdamW, fused=True),
    "in place": lambda module: nn.init.zeros_(module.weight),
    "average": average,
    "average of a model that is not trained here": lambda module: module.weight.data.mul_(0.5),
    "copy": lambda module: module.weight.data.copy_(torch.zeros(3, 3)),
    "copies": lambda module: torch._foreach_mul_([x.data for x in module.parameters()], 0.5),
    "data": lambda module: setattr(module.weight, "data", module.weight.data.clone()),
    "one number": lambda module: module.weight.data[2, 1].add_(1),
    "numpy": lambda module: module.weight.detach().numpy().fill(1.0),
    "one vector": lambda module: vector_to_parameters(torch.zeros(12), module.parameters()),
    "loaded": lambda module: module.load_state_dict({k: v + 1 for k, v in module.state_dict().items()}),
    "assigned": lambda module: module.load_state_dict(
        {k: v + 1 for k, v in module.state_dict().items()}, assign=True
    ),
    "another parameter": lambda module: setattr(module, "weight", nn.Parameter(torch.zeros(3, 3))),
    "another dtype": lambda module: module.double(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_parameters_are_noticed(change):
    module = nn.Sequential(nn.Linear(3, 3))
    before = ParameterSnapshot(module)
    assert before.is_current()
    CHANGES[change](module[0])
    assert not before.is_current()
    assert ParameterSnapshot(module).is_current()


def test_changes_of_saved_buffers_and_of_attributes_with_gradients_are_noticed():
    module = nn.BatchNorm1d(3)
    module.adapted = module.weight + 1
    for change in (
        lambda: module.running_mean.add_(1),
        lambda: setattr(module, "adapted", module.weight + 2),
        lambda: delattr(module, "adapted"),
    ):
        before = ParameterSnapshot(module)
        assert before.is_current()
        change()
        assert not before.is_current()


def test_caches_may_be_replaced():
    module = nn.Module()
    module.register_buffer("cosines", torch.zeros(3), persistent=False)
    module.slopes = torch.zeros(3)
    before = ParameterSnapshot(module)
    module.cosines, module.slopes = torch.zeros(4), torch.zeros(4)
    assert before.is_current()


def test_a_large_tensor_that_is_not_contiguous_is_not_copied():
    module = nn.Module()
    module.mask = torch.zeros(1, 70, 70, requires_grad=True).expand(10**6, 70, 70)
    before = ParameterSnapshot(module)
    assert [x.entries for x in before._parameters] == [None]
    module.mask = torch.zeros(3)
    assert not before.is_current()


def test_values_of_functional_call_are_noticed():
    module = nn.Linear(3, 3)
    before, seen = ParameterSnapshot(module), []
    module.register_forward_hook(lambda *_: seen.append(before.is_current()))
    torch.func.functional_call(module, {"weight": torch.zeros(3, 3)}, torch.ones(3))
    module(torch.ones(3))
    assert seen == [False, True]


def test_an_optimiser_of_others_changes_nothing():
    module = nn.Linear(3, 3)
    before = ParameterSnapshot(module)
    step(nn.Linear(2, 2), fused=True)
    assert before.is_current()


def test_nan_is_equal_to_itself():
    module = nn.Linear(3, 3).requires_grad_(False)
    module.weight[1, 1] = float("nan")
    before = ParameterSnapshot(module)
    step(nn.Linear(2, 2))
    assert before.is_current()


def test_what_is_written_into_large_parameters_by_data_is_noticed_after_steps_only():
    module = nn.Linear(65, 64)
    before = ParameterSnapshot(module)
    module.weight.data.mul_(0.5)
    assert before.is_current()
    step(nn.Linear(2, 2))
    assert not before.is_current()


def test_large_parameters_are_compared_in_part(monkeypatch):
    monkeypatch.setattr(parameter_snapshot, "MAX_COMPARED", 5)
    module = nn.Linear(7, 3)
    before = ParameterSnapshot(module)
    assert [x.entries.numel() for x in before._parameters] == [5, 3]
    step(module, fused=True)
    assert not before.is_current()


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_whether_results_have_gradients(device):
    module = nn.Linear(3, 3, device=device)
    before = ParameterSnapshot(module)
    assert before.learns
    with torch.no_grad():
        assert not before.learns
    module.requires_grad_(False)
    assert not before.learns
    assert before.is_current()
