import pytest
import torch
from torch import nn

from ordinate.ops import mlp_bias
from ordinate.testing.tolerance import assert_as_close


def drawn(biases, bends):
    """A network whose units bend inside the points, outside of them, or in both places."""
    inner, outer = nn.Linear(1, 7, bias=biases).double(), nn.Linear(7, 3, bias=biases).double()
    if biases:
        with torch.no_grad():
            inner.bias.copy_(-inner.weight[:, 0] * torch.linspace(*bends, 7))
    x = torch.rand(2, 5, 23, dtype=torch.float64).requires_grad_()
    return x, inner, outer


def results(made, x, inner, outer):
    weights = torch.linspace(-1, 1, made.numel(), dtype=torch.float64).reshape(made.shape).cos()
    return [
        made.detach(),
        *torch.autograd.grad((made * weights).sum(), (x, *inner.parameters(), *outer.parameters())),
    ]


@pytest.mark.parametrize("bends", [(0.1, 0.9), (-2.0, 3.0), (2.0, 3.0), (-1.0, 0.0)])
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("numbers", [1, 10, 1000])
def test_it_is_the_network_and_so_are_its_gradients(numbers, biases, bends, monkeypatch):
    monkeypatch.setattr(mlp_bias, "TILE_COLUMNS", 4)
    monkeypatch.setattr(mlp_bias, "BENT_NUMBERS", numbers)
    x, inner, outer = drawn(biases, bends)
    made = mlp_bias.scalar_relu_mlp(x, inner, outer, torch.float64)
    plain = mlp_bias.mlp(x[..., None], (inner, outer), torch.relu).movedim(-1, 1)
    for one, other in zip(results(made, x, inner, outer), results(plain, x, inner, outer), strict=True):
        assert_as_close(one, other, other)


def test_a_unit_that_is_taken_for_straight_is_noticed(monkeypatch):
    x, inner, outer = drawn(True, (0.1, 0.9))
    plain = mlp_bias.mlp(x[..., None], (inner, outer), torch.relu).movedim(-1, 1)
    whole = mlp_bias._Network.straight
    monkeypatch.setattr(mlp_bias._Network, "straight", lambda network, points: whole(network, points[:1, :1]))
    made = mlp_bias.scalar_relu_mlp(x, inner, outer, torch.float64)
    with pytest.raises(AssertionError, match="off by"):
        assert_as_close(made, plain, plain)


def test_no_points_give_nothing():
    _, inner, outer = drawn(True, (0.1, 0.9))
    for shape in ((0, 5, 3), (1, 0, 3), (1, 5, 0)):
        x = torch.zeros(shape, dtype=torch.float64).requires_grad_()
        made = mlp_bias.scalar_relu_mlp(x, inner, outer, torch.float32)
        assert made.shape == (shape[0], 3, *shape[1:])
        assert torch.autograd.grad(made.sum(), x)[0].shape == shape
