import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Fourier
from ordinate.testing import check_scheme

CELLS = {
    1: torch.tensor([[[0.0], [1], [2.5], [40]], [[7], [7], [3], [-2]]], dtype=torch.float64),
    2: torch.tensor([[[0.0, 0], [1, 5], [2.5, 1], [4, 40]], [[7, 1], [1, 7], [3, 3], [-2, 0]]], dtype=torch.float64),
}
CELLS[3] = torch.cat([CELLS[2], CELLS[1]], -1)


def frequencies(scheme):
    return scheme.frequencies.tolist() if scheme.seed is None else scheme.fixed


def waves(scheme, cell):
    """The Fourier features of one token: all cosines, then all sines."""
    angles = [sum(w * p / scheme.unit for w, p in zip(row, cell, strict=True)) for row in frequencies(scheme)]
    return [math.cos(a) for a in angles] + [math.sin(a) for a in angles]


def gelu(z):
    return z * 0.5 * (1 + math.erf(z / math.sqrt(2)))


def marked(scheme, cell):
    """What is added to one token, number by number."""
    y = waves(scheme, cell)
    if not scheme.network:
        return [scheme.scale * a for a in y]
    y = [a / math.sqrt(len(y)) for a in y]
    for place, layer in enumerate(scheme.network):
        y = [gelu(a) for a in y] if place else y
        rows, bias = layer.weight.tolist(), layer.bias.tolist()
        y = [sum(w * a for w, a in zip(row, y, strict=True)) + b for row, b in zip(rows, bias, strict=True)]
    return y


OPTIONS = [
    {},
    {"scale": 0.02, "frequency_std": 3.0},
    {"unit": 20.0},
    {"hidden": 5},
    {"hidden": 3, "width": 7, "unit": 5.0},
    {"seed": 0},
    {"seed": 4, "hidden": 5, "frequency_std": 0.1},
]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("options", OPTIONS)
def test_it_adds_the_fourier_features_of_each_token(options, axes):
    scheme = Fourier(**{"width": 8, "axes": axes, **options}).double()
    width = options.get("width", 8)
    x = torch.randn(2, 4, width, dtype=torch.float64)
    exact = x.clone()
    for row in range(2):
        for token in range(4):
            exact[row, token] += torch.tensor(marked(scheme, CELLS[axes][row, token].tolist()), dtype=torch.float64)
    assert torch.allclose(scheme.embed(x, CELLS[axes]), exact, rtol=0, atol=1e-12)


def test_the_gradients_of_the_frequencies_are_those_of_the_formula():
    scheme = Fourier(width=6, axes=2, unit=10.0, scale=0.5).double()
    up = torch.randn(2, 4, 6, dtype=torch.float64)
    (scheme.embed(torch.zeros(2, 4, 6, dtype=torch.float64), CELLS[2]) * up).sum().backward()
    exact = torch.zeros(3, 2, dtype=torch.float64)
    for row in range(2):
        for token in range(4):
            cell = CELLS[2][row, token] / 10
            for m in range(3):
                angle = sum(scheme.frequencies[m, a].item() * cell[a].item() for a in range(2))
                slope = 0.5 * (up[row, token, 3 + m] * math.cos(angle) - up[row, token, m] * math.sin(angle))
                exact[m] += slope * cell
    assert torch.allclose(scheme.frequencies.grad, exact, rtol=0, atol=1e-12)


def test_trained_frequencies_are_initialised_normal_with_the_given_deviation():
    drawn = Fourier(width=4000, axes=2, frequency_std=0.3).frequencies
    assert drawn.shape == (2000, 2)
    assert abs(drawn.std().item() - 0.3) < 0.01
    assert abs(drawn.mean().item()) < 0.02


def test_fixed_frequencies_are_normal_and_depend_on_the_seed_only():
    before = torch.random.get_rng_state()
    scheme = Fourier(width=4000, axes=2, frequency_std=0.3, seed=1)
    assert torch.random.get_rng_state().equal(before)
    drawn = torch.tensor(scheme.fixed)
    assert abs(drawn.std().item() - 0.3) < 0.01
    assert Fourier(width=4000, axes=2, frequency_std=0.3, seed=1).fixed == scheme.fixed
    assert Fourier(width=4000, axes=2, frequency_std=0.3, seed=2).fixed != scheme.fixed
    assert list(scheme.parameters()) == list(scheme.buffers()) == []
    assert scheme.state_dict() == {}


def test_a_seed_means_the_same_frequencies_for_ever():
    golden = [-0.2917335574360576, 1.227828129232084, -1.7450983449020254, 1.8179595058574176]
    assert [w for (w,) in Fourier(width=8, seed=0).fixed] == pytest.approx(golden, abs=1e-12)


def test_two_positions_are_alike_by_their_distance_in_any_direction():
    # the mean of cos(w . d) over normal w is exp(-|d|^2 / 2)
    scheme = Fourier(width=20_000, axes=2, seed=3).double()
    places = torch.tensor([[[50.0, 50], [51, 50], [50, 49], [50 + 0.5**0.5, 50 - 0.5**0.5], [52, 50]]])
    table = scheme.embed(torch.zeros(1, 5, 20_000, dtype=torch.float64), places.double())[0]
    alike = (table[1:] @ table[0]) / 10_000
    expected = torch.tensor([-0.5, -0.5, -0.5, -2.0], dtype=torch.float64).exp()
    assert (alike - expected).abs().max() < 0.03


def test_only_the_last_layer_is_initialised_with_the_given_scale():
    torch.manual_seed(1)
    plain = Fourier(width=4, hidden=3)
    torch.manual_seed(1)
    small = Fourier(width=4, hidden=3, scale=0.02)
    assert small.network[0].weight.equal(plain.network[0].weight)
    for one, other in zip(small.network[1].parameters(), plain.network[1].parameters(), strict=True):
        assert one.equal(other * 0.02)


def test_far_positions_keep_their_angles_in_low_precision():
    scheme = Fourier(width=4).bfloat16()
    far = torch.tensor([[[2**24 + 1]]])
    out = scheme.embed(torch.zeros(1, 1, 4, dtype=torch.bfloat16), far)
    exact = torch.tensor(waves(scheme, [2**24 + 1]), dtype=torch.float64)
    assert torch.allclose(out[0, 0].double(), exact, rtol=0, atol=2**-8)


def test_other_axes_than_those_it_was_built_for_are_refused():
    with pytest.raises(ValueError, match="Fourier takes positions with 2 axis; got 3 axes"):
        Fourier(width=8, axes=2).at(Geometry.grid(2, 2, 2))
    with pytest.raises(ValueError, match="Fourier takes positions with 1 axis; got 2 axes"):
        Fourier(width=8).at(Geometry.grid(2, 2))


@pytest.mark.parametrize("axes", [0, 4])
def test_more_than_three_axes_are_refused(axes):
    with pytest.raises(ValueError, match=f"fourier takes 1, 2 or 3 axes; got {axes}"):
        Fourier(width=8, axes=axes)


def test_an_odd_width_needs_a_network():
    with pytest.raises(ValueError, match="so the width must be even; got 7; give an even width, or hidden"):
        Fourier(width=7)
    assert Fourier(width=7, hidden=4).network[1].out_features == 7


@pytest.mark.parametrize("name", ["width", "frequency_std", "unit", "hidden", "scale"])
def test_sizes_must_be_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        Fourier(**{"width": 4, name: 0})


@pytest.mark.extended
@pytest.mark.parametrize("options", [{"hidden": 8}, {"seed": 0}, {"seed": 0, "hidden": 8}, {"axes": 2}, {"axes": 3}])
def test_it_keeps_the_contract_with_other_options(options):
    broken = {came.name: came.message for came in check_scheme(Fourier, **options) if came.message}
    assert broken == {}
