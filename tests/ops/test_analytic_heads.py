import math

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.ops.analytic_heads import (
    first_token_bias,
    first_token_head,
    offset_bias,
    offset_head_learned,
    offset_head_rope,
    offset_head_sinusoidal,
    slope_for_distance,
)
from ordinate.schemes import Alibi, NoPosition, Rope, Sinusoidal, Toeplitz

LENGTH = 512
SEEN = Geometry.causal(LENGTH)


def weights(q, k, at):
    """What attention gives when the values are the places themselves."""
    return attend(q, k, torch.eye(k.shape[2], dtype=k.dtype)[None, None], at)[0, 0]


def mass(found, offset):
    """The mean weight so far back, of the queries that have such a place; the mean over the last half."""
    return float(found.diagonal(-offset)[LENGTH // 2 :].mean())


def waves(width):
    return Sinusoidal(width=width, scale=1.0).at(SEEN).embed(torch.zeros(1, LENGTH, width, dtype=torch.float64))


@pytest.mark.parametrize(
    ("width", "strength", "expected"),
    [(64, 1, 0.578), (64, 4, 0.974), (64, 16, 1.0), (512, 0.125, 0.514), (512, 1, 0.998)],
)
def test_two_to_the_left_under_sinusoids(width, strength, expected):
    q, k = offset_head_sinusoidal(width, 2, strength).marks(waves(width))
    assert abs(mass(weights(q, k, NoPosition().at(SEEN)), 2) - expected) < 2e-3


@pytest.mark.parametrize(
    ("theta", "strength", "pairs", "expected"),
    [(1e4, 1, None, 0.769), (1e4, 4, None, 0.999), (5e5, 1, None, 0.666), (5e5, 4, None, 0.993), (1e4, 16, 8, 0.998)],
)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_two_to_the_left_under_rope(theta, strength, pairs, expected, layout):
    head = offset_head_rope(128, 2, strength, theta, layout=layout, pairs=pairs)
    q, k = head.marks(torch.randn(1, LENGTH, 1, dtype=torch.float64))
    found = mass(weights(q, k, Rope(head_width=128, theta=theta, layout=layout).at(SEEN)), 2)
    assert abs(found - expected) < 2e-3


@pytest.mark.parametrize("offset", [0, 1, 5, -3])
def test_any_offset_under_any_table(offset):
    table = torch.randn(20, 24, dtype=torch.float64)
    q, k = offset_head_learned(table, offset, 40.0).marks(table[None])
    found = weights(q, k, NoPosition().at(Geometry.full(20)))
    torch.testing.assert_close(found.diagonal(-offset), torch.ones(20 - abs(offset), dtype=torch.float64))
    q, k = offset_head_rope(64, offset, 9.0).marks(torch.zeros(1, 20, 1, dtype=torch.float64))
    assert weights(q, k, Rope(head_width=64).at(Geometry.full(20))).diagonal(-offset).min() > 0.99


@pytest.mark.parametrize(("width", "expected"), [(16, 0.881), (64, 0.987), (512, 1.0)])
def test_the_first_token_under_sinusoids(width, expected):
    code = waves(width)
    q, k = first_token_head(code[0], 4.0).marks(code)
    assert abs(float(weights(q, k, NoPosition().at(SEEN))[:, 0][LENGTH // 2 :].mean()) - expected) < 2e-3


@pytest.mark.parametrize(("slope", "expected"), [(1.0, 0.58), (0.5, 1.54), (1 / 16, 15.51)])
def test_weighted_by_distance_under_alibi(slope, expected):
    assert abs(slope_for_distance(expected) / slope - 1) < 5e-3
    scheme = Alibi(heads=1, trainable=True)
    scheme.log_slopes.data[:] = math.log(slope_for_distance(expected))
    q = torch.zeros(1, 1, LENGTH, 4, dtype=torch.float64)
    row = weights(q, q, scheme.at(SEEN))[-1].detach()
    assert abs(float(row @ (LENGTH - 1 - torch.arange(LENGTH)).double()) / expected - 1) < 1e-3


def test_tables_of_biases():
    scheme, q = Toeplitz(heads=2, max_length=16), torch.zeros(1, 2, 16, 4, dtype=torch.float64)
    scheme.table.data = torch.stack([offset_bias(2, 30.0, 15), first_token_bias(2.0, 15)], 1)
    eye = torch.eye(16, dtype=torch.float64).expand(1, 2, 16, 16)
    back, front = attend(q, q, eye, scheme.at(Geometry.causal(16)))[0].detach()
    assert back.diagonal(-2).min() > 0.999
    torch.testing.assert_close(float(front[-1, 0]), 1 - math.exp(-2.0), atol=1e-6, rtol=0)


def test_invalid_tables_and_offsets_are_rejected():
    with pytest.raises(ValueError, match="rows of the table must be linearly independent"):
        offset_head_learned(torch.randn(9, 8), 1, 1.0)
    with pytest.raises(ValueError, match="even width"):
        offset_head_sinusoidal(7, 1, 1.0)
    with pytest.raises(ValueError, match="offset must lie within reach"):
        offset_bias(9, 1.0, 8)
