import pytest
import torch

from ordinate.core import checkpointed as module
from ordinate.core.checkpointed import checkpointed, stored


def test_a_function_is_computed_again_with_the_same_random_numbers():
    x, runs = torch.randn(50, requires_grad=True), []

    def function(x):
        runs.append(1)
        return torch.dropout(x * x, 0.5, train=True).exp()

    def result(compute):
        torch.manual_seed(0)
        out = compute(x)
        return out, *torch.autograd.grad(out.sum(), x)

    usual = result(function)
    assert len(runs) == 1
    again = result(lambda x: checkpointed(function, x))
    assert len(runs) == 3
    assert all(one.equal(other) for one, other in zip(usual, again, strict=True))


def by_pytorch(function, *given):
    return torch.utils.checkpoint.checkpoint(function, *given, use_reentrant=False)


@pytest.mark.parametrize("checkpointed", [checkpointed, by_pytorch])
def test_what_is_kept_beyond_it_is_made_once(checkpointed):
    weight, made = torch.randn(5, requires_grad=True), {}

    def shared():
        if "bias" not in made:
            made["bias"] = stored(lambda: (weight * weight).exp())
        return made["bias"]

    def function(x):
        return (x * shared()).sin()

    x = torch.randn(5, requires_grad=True)
    out = checkpointed(function, checkpointed(function, x))
    found = torch.autograd.grad(out.sum(), [x, weight])
    made.clear()
    usual = torch.autograd.grad(function(function(x)).sum(), [x, weight])
    assert all(one.equal(other) for one, other in zip(found, usual, strict=True))
    assert not module._INSIDE.get()
