import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Concatenated, Sinusoidal


def test_it_appends_the_sinusoids_of_the_paper():
    scheme = Concatenated(width=12, position_width=5)
    x = torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)
    positions = [0, 4, 100]
    out = scheme.embed(x, torch.tensor(positions)[None, :, None])
    assert out[..., :7].equal(x)
    for token, p in enumerate(positions):
        for c in range(5):
            wave = (math.cos if c % 2 else math.sin)(p / 10_000 ** ((c - c % 2) / 5))
            assert (out[:, token, 7 + c] - wave).abs().max() < 1e-12
    weights = torch.randn(2, 3, 12, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((out * weights).sum(), x)
    assert gradient.equal(weights[..., :7])


@pytest.mark.parametrize(("width", "appended_width"), [(4, 2), (8, 2), (32, 8), (128, 32), (129, 32)])
def test_a_quarter_of_the_width_made_even_is_appended(width, appended_width):
    assert Concatenated(width=width).appended_width == appended_width


def test_a_matrix_that_reads_both_can_do_all_that_adding_does():
    # W [t; p] with W = [V, V] is V (t + p)
    x, matrix = torch.randn(1, 6, 8, dtype=torch.float64), torch.randn(5, 8, dtype=torch.float64)
    at = Geometry.causal(6)
    both = Concatenated(width=16, position_width=8).at(at).embed(x)
    added = Sinusoidal(width=8).at(at).embed(x)
    assert torch.allclose(both @ torch.cat([matrix, matrix], 1).T, added @ matrix.T, rtol=0, atol=1e-13)


@pytest.mark.parametrize("columns", [8, 9])
def test_some_columns_must_be_left_for_the_tokens(columns):
    with pytest.raises(ValueError, match=f"must leave columns for the tokens; got {columns} of 8 columns"):
        Concatenated(width=8, position_width=columns)


@pytest.mark.parametrize(("given", "name"), [({"position_width": 0}, "position_width"), ({"theta": 0.0}, "theta")])
def test_sizes_must_be_above_zero(given, name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        Concatenated(width=8, **given)
