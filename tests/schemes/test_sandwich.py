import math

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes.sandwich import Sandwich
from ordinate.testing import check_scheme

PLACES = [0, 1, 5, 40, 41.5, 1500]


def published(heads, size, first, theta, h, distance):
    # the sum of the paper for one pair; h counts from 0
    waves = sum(math.cos(distance / theta ** (2 * m / size)) for m in range(first, first + size // 2))
    return (waves - size / 2) / (8 * (h + 1) / heads)


@pytest.mark.parametrize(("size", "first", "theta"), [(128, 0, 10000.0), (128, 1, 10000.0), (6, 0, 50.0)])
@pytest.mark.parametrize("causal", [True, False])
def test_the_bias_is_the_sum_of_cosines(size, first, theta, causal):
    scheme = Sandwich(heads=3, sinusoid_width=size, first_frequency=first, theta=theta)
    pos = torch.tensor(PLACES, dtype=torch.float64)[None, :, None]
    bias = scheme.bias(Geometry.from_positions(pos, causal=causal))
    assert bias.dtype == torch.float32
    for h in range(3):
        for i, x in enumerate(PLACES):
            for j, y in enumerate(PLACES):
                exact = published(3, size, first, theta, h, x - y)
                assert abs(bias[0, h, i, j].item() - exact) <= 6e-8 * abs(exact) + 1e-12


def test_in_float64_the_bias_is_exact():
    where = Geometry.from_positions(torch.tensor(PLACES, dtype=torch.float64)[None, :, None])
    bias = Sandwich(heads=3).double().bias(where)
    exact = torch.tensor(
        [[published(3, 128, 0, 10000.0, h, x) for x in PLACES] for h in range(3)], dtype=torch.float64
    )
    assert torch.allclose(bias[0, :, :, 0], exact, rtol=1e-13, atol=1e-12)


def test_it_is_the_table_of_attention_gym_up_to_a_constant_of_each_head():
    heads, size, n = 4, 128, 50
    rates = 1.0 / 10000 ** (2 * torch.arange(size // 2, dtype=torch.float64) / size)
    table = torch.cos(torch.arange(1 - n, n)[:, None] * rates).sum(-1)
    offsets = torch.arange(n)[:, None] - torch.arange(n) + n - 1
    scale = heads / (8.0 * torch.arange(1, heads + 1, dtype=torch.float64))
    theirs = table[offsets] * scale[:, None, None]
    ours = Sandwich(heads=heads).bias(Geometry.full(n))[0].double()
    constant = size / 2 * scale[:, None, None]
    assert torch.allclose(ours, theirs - constant, rtol=0, atol=1e-4)
    q, k, v = torch.randn(3, 1, heads, n, 8, dtype=torch.float64).unbind()
    out = attend(q, k, v, Sandwich(heads=heads).at(Geometry.full(n)))
    weights = (q @ k.mT / math.sqrt(8) + theirs).softmax(-1)
    assert torch.allclose(out, weights @ v, rtol=0, atol=1e-5)


def test_it_is_the_bias_of_nemo_without_the_first_frequency():
    heads, size, n = 4, 16, 20
    rates = 1.0 / (10000 ** (2 * torch.arange(1, size / 2 + 1) / size))
    distance = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    waves = torch.sum((distance[:, :, None] * rates).cos(), dim=2)
    scales = torch.arange(1, heads + 1)[:, None, None]
    theirs = (waves - size / 2) / (scales * 8 / heads)
    ours = Sandwich(heads=heads, sinusoid_width=size, first_frequency=1).bias(Geometry.full(n))[0]
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_it_falls_with_the_distance_and_is_0_at_its_own_place():
    bias = Sandwich(heads=8).bias(Geometry.causal(513))[0, :, 512]
    assert (bias[:, 512] == 0).all()
    assert (bias[:, 511] < 0).all()
    far = bias[0, [511, 502, 412, 256, 0]]
    assert (far.diff() < 0).all()
    assert torch.allclose(bias[0] / 8, bias[7], rtol=1e-6, atol=1e-6)


def test_both_sides_are_alike():
    bias = Sandwich(heads=2).bias(Geometry.full(9))
    assert bias.equal(bias.mT)


@pytest.mark.parametrize("shift", [2**24 + 1, 2**31 - 100])
def test_far_positions_lose_nothing(shift):
    scheme = Sandwich(heads=4)
    pos = torch.tensor([0, 1, 7, 90])[None, :, None]
    near, far = scheme.bias(Geometry.from_positions(pos)), scheme.bias(Geometry.from_positions(pos + shift))
    assert near.equal(far)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sinusoid_width": 7}, "sandwich needs an even sinusoid_width; got 7; 128 is usual"),
        ({"first_frequency": 2}, "first_frequency must be 0 or 1; got 2"),
        ({"sinusoid_width": 0}, "sinusoid_width must be above zero; got 0"),
        ({"heads": 0}, "heads must be above zero; got 0"),
        ({"theta": 0.0}, "theta must be above zero; got 0.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Sandwich(**{"heads": 2} | options)


@pytest.mark.extended
@pytest.mark.parametrize("options", [{"first_frequency": 1}, {"sinusoid_width": 6, "theta": 50.0}], ids=str)
def test_every_option_keeps_the_contract(options):
    broken = [f"{one.name}: {one.message}" for one in check_scheme(Sandwich, **options) if one.message]
    assert not broken, "\n".join(broken)
