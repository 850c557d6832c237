import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes.tisa import Tisa
from ordinate.testing import check_scheme

PLACES = [0, 1, 5, 9, 9.5, 40]


@pytest.mark.parametrize("kernels", [1, 5])
@pytest.mark.parametrize("causal", [True, False])
def test_bias_and_gradients_are_those_of_the_formula(kernels, causal):
    scheme = Tisa(heads=3, kernels=kernels).double()
    with torch.no_grad():
        scheme.sharpness[0, 0] = -0.2
    pos = torch.tensor(PLACES, dtype=torch.float64)[None, :, None]
    bias = scheme.bias(Geometry.from_positions(pos, causal=causal))
    weights = torch.randn_like(bias)
    slopes = {name: torch.zeros_like(value) for name, value in scheme.named_parameters()}
    for h in range(3):
        for i, x in enumerate(PLACES):
            for j, y in enumerate(PLACES):
                exact, weight = 0.0, weights[0, h, i, j].item()
                for s in range(kernels):
                    a, b, c = (value[s, h].item() for value in (scheme.height, scheme.sharpness, scheme.center))
                    bump = math.exp(-abs(b) * (x - y - c) ** 2)
                    exact += a * bump
                    slopes["height"][s, h] += weight * bump
                    slopes["sharpness"][s, h] -= weight * a * bump * (x - y - c) ** 2 * math.copysign(1, b)
                    slopes["center"][s, h] += weight * a * bump * 2 * abs(b) * (x - y - c)
                assert abs(bias[0, h, i, j].item() - exact) <= 1e-14
    (bias * weights).sum().backward()
    for name, parameter in scheme.named_parameters():
        assert (parameter.grad - slopes[name]).abs().max() <= 1e-12 * max(1, slopes[name].abs().max())


def test_it_is_the_published_code_one_token_further():
    # its bumps count p_j - p_i from rows of a table that begins at -n, one below the farthest distance
    scheme, n = Tisa(heads=2).double(), 6
    offsets = torch.arange(-n, n + 1)
    table = scheme.height[..., None] * torch.exp(
        -scheme.sharpness[..., None].abs() * (scheme.center[..., None] - offsets) ** 2
    )
    places = torch.arange(0, -(n**2), -1).view(n, n) + n - 1 + (n + 1) * torch.arange(n)[:, None]
    theirs = table.sum(0)[:, places]
    with torch.no_grad():
        scheme.center.add_(1)
    assert torch.allclose(scheme.bias(Geometry.full(n))[0], theirs, rtol=0, atol=1e-14)


def test_parameters_are_initialised_as_in_the_published_code():
    scheme = Tisa(heads=2000)
    for numbers, mean, spread in ((scheme.center, 0, 5), (scheme.height, 0.1, 0.01), (scheme.sharpness, 0.1, 0.01)):
        assert numbers.shape == (5, 2000)
        assert abs(numbers.mean().item() - mean) < 0.05 * spread
        assert abs(numbers.std().item() - spread) < 0.05 * spread


def test_a_bump_can_point_at_two_tokens_back_and_tells_ahead_from_behind():
    scheme = Tisa(heads=1, kernels=1)
    with torch.no_grad():
        for numbers, value in ((scheme.height, 3.0), (scheme.sharpness, 4.0), (scheme.center, 2.0)):
            numbers.fill_(value)
    bias = scheme.bias(Geometry.full(6))[0, 0]
    assert bias[4].argmax() == 2
    assert bias[4, 2] == 3
    assert bias[0].max() < 1e-5


def test_far_from_all_bumps_nothing_is_added_and_nothing_is_lost():
    scheme = Tisa(heads=2)
    pos = torch.tensor([0, 1, 2**24, 2**24 + 1, 2**31 - 1])[None, :, None]
    bias = scheme.bias(Geometry.from_positions(pos))
    assert (bias[..., 4, :4] == 0).all()
    assert bias[..., 3, 2].equal(bias[..., 1, 0])
    bias.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in scheme.parameters())


@pytest.mark.parametrize("name", ["heads", "kernels"])
def test_numbers_that_are_not_positive_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        Tisa(**{"heads": 2} | {name: 0})


@pytest.mark.extended
def test_one_kernel_keeps_the_contract():
    broken = [f"{one.name}: {one.message}" for one in check_scheme(Tisa, kernels=1) if one.message]
    assert not broken, "\n".join(broken)
