import pytest
import torch
from torch import nn

from ordinate.ops import log_bias, mlp_bias
from ordinate.ops.native import build, piecewise_linear

INFINITY = float("inf")


@pytest.fixture(autouse=True)
def _built(monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    reason = build.unavailable_reason("piecewise_linear")
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setattr(mlp_bias, "MIN_NATIVE", 0)


def points(kind):
    """More points than a task has, on several pieces each."""
    size = (2, 3, 1500)
    if kind == "random":
        return 4 * torch.rand(size, dtype=torch.float64) - 2
    if kind == "rows":
        return torch.linspace(2, -2, 1500, dtype=torch.float64).expand(size).clone()
    # each is a knot of one of the units below, or next to it
    return (torch.arange(9000) % 11 - 5).double().div(2).view(size)


def network(biases):
    torch.manual_seed(1)
    inner, outer = nn.Linear(1, 9, bias=biases), nn.Linear(9, 3, bias=biases)
    with torch.no_grad():
        # two units that bend in one place, one that never does, and one that is always off
        inner.weight[:, 0] = torch.tensor([1.0, -1.0, 0.5, 2.0, -3.0, 1.0, 1.0, 0.0, 0.0])
        if biases:
            inner.bias.copy_(torch.tensor([0.0, 0.5, 0.5, -1.0, 0.1, 0.7, 0.7, 1.0, -1.0]))
    return inner, outer


def results(made, x, layers, create_graph=False):
    upstream = torch.linspace(-1, 1, made.numel(), dtype=torch.float64).reshape(made.shape).cos()
    leaves = [x, *(parameter for layer in layers for parameter in layer.parameters())]
    return [made, *torch.autograd.grad((made * upstream).sum(), leaves, create_graph=create_graph)]


def both(kind, biases, create_graph=False):
    x, layers = points(kind).requires_grad_(), network(biases)
    made = mlp_bias.scalar_relu_mlp(x, *layers, torch.float32)
    exact = mlp_bias.mlp(x[..., None], layers, torch.relu).movedim(-1, 1)
    return x, layers, [results(y, x, layers, create_graph) for y in (made, exact)]


@pytest.mark.parametrize("kind", ["random", "rows", "knots"])
@pytest.mark.parametrize("biases", [True, False])
def test_it_is_the_network_and_so_are_its_gradients(biases, kind):
    _, _, (found, exact) = both(kind, biases)
    assert found[0].dtype == torch.float32
    assert torch.equal(found[0], exact[0].float())
    # where a unit bends it has several gradients
    for one, other in zip(found[1:], exact[1:], strict=True) if kind != "knots" else ():
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_second_derivatives_are_those_of_the_network():
    x, layers, made = both("random", True, create_graph=True)
    leaves = [x, *(parameter for layer in layers for parameter in layer.parameters())]
    found, exact = (
        torch.autograd.grad(sum(y.double().square().sum() for y in first[1:]), leaves, materialize_grads=True)
        for first in made
    )
    for one, other in zip(found, exact, strict=True):
        # parameters are float32, and so are their gradients
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * other.abs().max().item())


def test_points_that_are_not_finite_give_nan_or_infinity_and_leave_others_alone():
    x = points("rows")
    plain = mlp_bias.scalar_relu_mlp(x, *network(True), torch.float32)
    x[0, 1, 3], x[1, 2, 1499], x[0, 0, 0] = float("nan"), INFINITY, -INFINITY
    made = mlp_bias.scalar_relu_mlp(x, *network(True), torch.float32)
    bad = torch.zeros(2, 3, 3, 1500, dtype=torch.bool)
    bad[0, :, 1, 3] = bad[1, :, 2, 1499] = bad[0, :, 0, 0] = True
    assert torch.equal(made.isfinite(), ~bad)
    assert torch.equal(made[~bad], plain[~bad])


def test_results_do_not_depend_on_the_number_of_threads():
    one = both("rows", True)[2][0]
    torch.set_num_threads(2)
    try:
        two = both("rows", True)[2][0]
    finally:
        torch.set_num_threads(1)
    assert all(map(torch.equal, one, two))


def test_a_part_of_a_bias_is_that_part_of_the_whole():
    x, layers = points("random"), network(True)
    whole = mlp_bias.scalar_relu_mlp(x, *layers, torch.float32)
    part = mlp_bias.scalar_relu_mlp(x[1:, 1:, 37:300], *layers, torch.float32)
    assert torch.equal(part, whole[1:, :, 1:, 37:300])


def next_piece(x, knots, levels, slopes, real=piecewise_linear.piecewise_linear):
    return real(x, knots.roll(1), levels, slopes)


def without_the_last_task(*inputs, real=piecewise_linear._gradients):
    *inputs, upstream = inputs
    upstream = upstream.clone()
    upstream.flatten(2)[..., piecewise_linear.CHUNK :] = 0
    return real(*inputs, upstream)


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [(mlp_bias, "piecewise_linear", next_piece), (piecewise_linear, "_gradients", without_the_last_task)],
)
def test_a_wrong_piece_or_a_dropped_task_is_noticed(module, name, wrong, monkeypatch):
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(AssertionError):
        test_it_is_the_network_and_so_are_its_gradients(True, "random")


def test_it_serves_the_kernel_that_it_is_for(monkeypatch):
    called = []
    monkeypatch.setattr(
        mlp_bias, "piecewise_linear", lambda *given: called.append(given) or torch.zeros(2, 3, 3, 1500)
    )
    mlp_bias.scalar_relu_mlp(points("rows"), *network(True), torch.float32)
    assert len(called) == 1
    pieces = log_bias.mlp_pieces(*network(True))
    assert torch.equal(called[0][1], pieces.knots)
    # float64, and few points, are left to PyTorch
    mlp_bias.scalar_relu_mlp(points("rows"), *network(True), torch.float64)
    monkeypatch.setattr(mlp_bias, "MIN_NATIVE", 2**20)
    mlp_bias.scalar_relu_mlp(points("rows"), *network(True), torch.float32)
    assert len(called) == 1
