import math

import pytest
import torch

from ordinate import Alibi, Geometry


def published(heads):
    # get_slopes of the paper's code (ofirpress/attention_with_linear_biases)
    def power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_two(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return power_of_two(closest) + published(2 * closest)[0::2][: heads - closest]


@pytest.mark.parametrize("heads", range(1, 41))
def test_the_slopes_are_those_of_the_published_code(heads):
    ours, theirs = Alibi(heads=heads).slopes, published(heads)
    assert len(ours) == heads
    assert all(math.isclose(one, other, rel_tol=1e-12) for one, other in zip(ours, theirs, strict=True))


def test_golden_slopes():
    eight = [2.0**-power for power in range(1, 9)]
    assert Alibi(heads=8).slopes == eight
    twelve = Alibi(heads=12).slopes
    assert twelve[:8] == eight
    assert [round(slope, 6) for slope in twelve[8:]] == [0.707107, 0.353553, 0.176777, 0.088388]
    assert [round(slope, 6) for slope in Alibi(heads=16).slopes[:3]] == [0.707107, 0.5, 0.353553]


@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("where", [Geometry.causal(7), Geometry.full(7), Geometry.causal(2, cached=5)])
def test_the_bias_is_the_slope_times_the_distance(heads, where):
    bias = Alibi(heads=heads).bias(where)
    for h, slope in enumerate(published(heads)):
        for i, p in enumerate(where.q_pos[0, :, 0].tolist()):
            for j, r in enumerate(where.k_pos[0, :, 0].tolist()):
                assert math.isclose(bias[0, h, i, j].item(), -slope * abs(p - r), rel_tol=1e-7)
    assert bias.dtype == torch.float32


def test_every_distance_has_a_bias_of_its_own_however_narrow_the_model():
    scheme = Alibi(heads=8).bfloat16()
    row = scheme.bias(Geometry.causal(4096).block(slice(4095, 4096)))[0, :, 0]
    assert all(len(set(head.tolist())) == 4096 for head in row)
    assert (row.diff() > 0).all()
    assert (row[:, -1] == 0).all()


def test_fractional_positions_have_fractional_penalties():
    where = Geometry.given(torch.tensor([[[0.0], [0.25]]], dtype=torch.float64))
    assert Alibi(heads=8).bias(where)[0, 0, 1, 0] == -0.125


def test_heads_must_be_above_zero():
    with pytest.raises(ValueError, match="heads must be above zero; got 0; give a positive heads"):
        Alibi(heads=0)


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="Alibi takes positions with 1 axis; got 2 axes"):
        Alibi(heads=2).at(Geometry.grid(2, 2))


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 16, 40])
def test_it_agrees_with_bloom(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 6), heads, torch.float32)[:, 0]
    # bloom adds slope x key position: the same up to a constant in each row
    ours = Alibi(heads=heads).bias(Geometry.causal(6))[0, :, -1]
    assert torch.allclose(ours - ours[:, :1], theirs, rtol=1e-6, atol=1e-6)


def test_bloom_with_a_padded_row():
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    mask = torch.tensor([[0, 1, 1]])
    theirs = bloom.build_alibi_tensor(mask, 2, torch.float32)[:, 0]
    assert theirs.tolist() == [[0, 0, 0.0625], [0, 0, 0.00390625]]
    ours = Alibi(heads=2).bias(Geometry.padded(mask.bool()))[0, :, -1]
    assert (ours - ours[:, :1]).equal(theirs)
