import pytest
import torch
from torch import nn

from ordinate import Geometry
from ordinate.ops.log_bias import mlp_pieces
from ordinate.ops.mlp_bias import mlp
from ordinate.schemes import Fire, Kerple
from ordinate.testing.tolerance import assert_as_close


def drawn(biases):
    """A network with units that turn on, off, at one place, never, and that are always on or off."""
    inner, outer = nn.Linear(1, 9, bias=biases).double(), nn.Linear(9, 3, bias=biases).double()
    with torch.no_grad():
        inner.weight[:, 0] = torch.tensor([1.0, -1, 2, 2, -2, 0.5, 0, 0, 1e-9])
        if biases:
            inner.bias.copy_(torch.tensor([-0.3, 0.4, -1, -1, 0.2, 0.1, 0.7, -0.7, -0.5]))
    return inner, outer


def results(made, x, *layers):
    weights = torch.linspace(-1, 1, made.numel(), dtype=torch.float64).reshape(made.shape).cos()
    parameters = [y for layer in layers for y in layer.parameters()]
    return [made.detach(), *torch.autograd.grad((made * weights).sum(), (x, *parameters))]


@pytest.mark.parametrize("biases", [True, False])
def test_the_pieces_are_the_network_and_so_are_their_gradients(biases):
    inner, outer = drawn(biases)
    x = torch.linspace(-0.6, 1.4, 60, dtype=torch.float64).reshape(2, 1, 5, 6).requires_grad_()
    made = mlp_pieces(inner, outer).at(x)
    plain = mlp(x[:, 0, ..., None], (inner, outer), torch.relu).movedim(-1, 1)
    assert made.shape == plain.shape
    for one, other in zip(results(made, x, inner, outer), results(plain, x, inner, outer), strict=True):
        assert_as_close(one, other, other)


def test_units_in_the_order_of_their_names_and_not_of_their_kinks_are_noticed(monkeypatch):
    inner, outer = drawn(True)
    x = torch.linspace(-0.6, 1.4, 60, dtype=torch.float64).reshape(2, 1, 5, 6)
    plain = mlp(x[:, 0, ..., None], (inner, outer), torch.relu).movedim(-1, 1)
    monkeypatch.setattr(torch.Tensor, "scatter", lambda rank, *given: torch.arange(len(rank)))
    made = mlp_pieces(inner, outer)
    with pytest.raises(AssertionError, match="off by"):
        assert_as_close(made.at(x), plain, plain)


@pytest.mark.parametrize("mode", ["max", "sqrt", "min"])
@pytest.mark.parametrize("biases", [True, False])
def test_the_curve_of_fire_is_its_bias_and_has_its_gradients(mode, biases):
    scheme = Fire(heads=3, threshold=20, threshold_mode=mode, biases=biases).double()
    torch.nn.init.constant_(scheme.c, -0.1)
    for where in (Geometry.causal(70, cached=9), Geometry.packed([40, 30]), Geometry.full(33)):
        bias, seen = scheme.bias(where), where.visible[:, None]
        made = scheme.log_bias(where).bias(where.offset[..., 0].abs())
        weights = torch.randn_like(bias) * seen
        assert_as_close(made * seen, bias * seen, bias * seen)
        of_made, of_bias = (torch.autograd.grad((x * weights).sum(), list(scheme.parameters())) for x in (made, bias))
        for one, other in zip(of_made, of_bias, strict=True):
            assert_as_close(one, other, other)


def test_a_divisor_of_future_keys_is_no_share_of_the_query():
    scheme = Fire(heads=2, future_divisor="max")
    assert scheme.log_bias(Geometry.full(5)) is None
    assert scheme.log_bias(Geometry.causal(5)) is not None


def test_kerple_has_one_piece_if_it_is_logarithmic():
    where = Geometry.causal(40)
    for form in ("log", "power", "log_power"):
        scheme = Kerple(heads=4, form=form).double()
        made = scheme.log_bias(where)
        if form != "log":
            assert made is None
            continue
        bias, seen = scheme.bias(where), where.visible[:, None]
        assert_as_close(made.bias(where.offset[..., 0].abs()) * seen, bias * seen, bias * seen)
