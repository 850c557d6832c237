import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Continuous
from ordinate.testing import check_scheme

POSITIONS = torch.tensor([[0.0, 0.5, 3.25, 40.0], [-2.0, 7.0, 7.0, 100.5]], dtype=torch.float64)[..., None]


def network(scheme, position):
    """One position through the network, number by number."""
    y = [position / scheme.unit]
    for place, layer in enumerate(scheme.network):
        if place:
            y = [a / (1 + math.exp(-a)) if a > -700 else 0.0 for a in y]
        rows, bias = layer.weight.tolist(), layer.bias.tolist()
        y = [sum(w * a for w, a in zip(row, y, strict=True)) + b for row, b in zip(rows, bias, strict=True)]
    return y


@pytest.mark.parametrize("options", [{}, {"hidden": 3}, {"depth": 2}, {"depth": 5, "hidden": 4}, {"unit": 0.25}])
def test_it_adds_what_the_network_makes_of_each_position(options):
    scheme = Continuous(width=5, max_length=50, **options).double()
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    exact = x.clone()
    for row in range(2):
        for token in range(4):
            made = network(scheme, POSITIONS[row, token, 0].item())
            exact[row, token] += torch.tensor(made, dtype=torch.float64)
    assert torch.allclose(scheme.embed(x, POSITIONS), exact, rtol=0, atol=1e-12)


def test_the_gradients_of_every_matrix_are_those_of_the_formula():
    # two layers, by hand: y = B silu(A p + a) + b
    scheme = Continuous(width=3, unit=10.0, hidden=2, depth=2).double()
    (a, b), weights = scheme.network, torch.randn(2, 4, 3, dtype=torch.float64)
    (scheme.embed(torch.zeros(2, 4, 3, dtype=torch.float64), POSITIONS) * weights).sum().backward()
    expected = {name: torch.zeros_like(value) for name, value in scheme.named_parameters()}
    for row in range(2):
        for token in range(4):
            p, up = POSITIONS[row, token, 0].item() / 10, weights[row, token]
            for h in range(2):
                z = a.weight[h, 0].item() * p + a.bias[h].item()
                gate = 1 / (1 + math.exp(-z))
                slope = sum(up[c].item() * b.weight[c, h].item() for c in range(3)) * gate * (1 + z * (1 - gate))
                expected["network.0.weight"][h, 0] += slope * p
                expected["network.0.bias"][h] += slope
                expected["network.1.weight"][:, h] += up * z * gate
            expected["network.1.bias"] += up
    for name, parameter in scheme.named_parameters():
        assert torch.allclose(parameter.grad, expected[name], rtol=0, atol=1e-12), name


def test_max_length_is_the_unit_by_default():
    assert Continuous(width=4, max_length=50).unit == 50
    assert Continuous(width=4, max_length=50, unit=7).unit == 7
    assert Continuous(width=4, max_length=50).max_length is None


def test_only_the_last_layer_is_initialised_with_the_given_scale():
    torch.manual_seed(1)
    plain = Continuous(width=4, max_length=50)
    torch.manual_seed(1)
    small = Continuous(width=4, max_length=50, scale=0.02)
    assert small.network[0].weight.equal(plain.network[0].weight)
    for one, other in zip(small.network[-1].parameters(), plain.network[-1].parameters(), strict=True):
        assert one.equal(other * 0.02)


def test_between_two_positions_it_changes_gradually():
    scheme = Continuous(width=4, unit=10.0).double()
    line = torch.arange(0, 100, 0.01, dtype=torch.float64)[None, :, None]
    made = scheme.embed(torch.zeros(1, line.shape[1], 4, dtype=torch.float64), line)[0]
    assert made.diff(dim=0).abs().max() < 0.01
    assert (made[0] - made[-1]).abs().max() > 0.1


def test_a_far_position_costs_no_precision():
    scheme = Continuous(width=4, unit=1.0).bfloat16()
    far = torch.tensor([[[2**24 + 1], [2**24]]])
    made = scheme.double().embed(torch.zeros(1, 2, 4, dtype=torch.float64), far)[0]
    assert torch.allclose(made[0], torch.tensor(network(scheme, 2**24 + 1), dtype=torch.float64), rtol=1e-12, atol=0)
    assert (made[0] - made[1]).abs().max() > 1e-3


def test_it_must_know_what_counts_as_one():
    with pytest.raises(ValueError, match="got neither unit nor max_length; give unit, a number of tokens"):
        Continuous(width=4)


def test_one_layer_is_refused():
    with pytest.raises(ValueError, match="at least two layers; got 1; for a linear function use scalar"):
        Continuous(width=4, max_length=5, depth=1)


@pytest.mark.parametrize("name", ["width", "unit", "hidden", "scale"])
def test_sizes_must_be_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        Continuous(**{"width": 4, "max_length": 7, name: 0})
    with pytest.raises(ValueError, match="max_length must be above zero; got 0"):
        Continuous(width=4, max_length=0)


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="Continuous takes positions with 1 axis; got 2 axes"):
        Continuous(width=8, max_length=5).at(Geometry.grid(2, 2))


@pytest.mark.extended
def test_it_keeps_the_contract_with_a_unit_and_more_layers():
    broken = {came.name: came.message for came in check_scheme(Continuous, unit=10.0, depth=4) if came.message}
    assert broken == {}


def test_it_agrees_with_bio_attention():
    positional = pytest.importorskip("bio_attention.positional")
    theirs = positional.LearnedContinuous(5, depth=3, divide=20.0).double()
    ours = Continuous(width=5, unit=20.0).double()
    for layer, block in zip(ours.network, theirs.mlp, strict=True):
        linear = next(part for part in block if isinstance(part, torch.nn.Linear))
        layer.load_state_dict(linear.state_dict())
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    made = theirs.mod_x(x, pos=POSITIONS[..., 0])
    assert torch.allclose(ours.embed(x, POSITIONS), made, rtol=0, atol=1e-12)
