import math

import pytest
import torch

from ordinate import Decoder, Geometry, Shape, attend
from ordinate.ops.buckets import log_buckets
from ordinate.schemes import T5

# relative positions as T5 writes them: key minus query
BOTH = [-130, -64, -9, -8, -7, -1, 0, 1, 7, 8, 16, 64, 127, 128]
BOTH_BUCKETS = [15, 14, 8, 8, 7, 1, 0, 17, 23, 24, 26, 30, 31, 31]
BACK = [-200, -128, -127, -64, -32, -17, -16, -15, -1, 0, 1]
BACK_BUCKETS = [31, 31, 31, 26, 21, 16, 16, 15, 1, 0, 0]


def published(relative, both_sides, buckets, max_distance):
    # _relative_position_bucket of the paper's code, for one number
    bucket, n = 0, -relative
    if both_sides:
        buckets //= 2
        bucket += buckets if n < 0 else 0
        n = abs(n)
    else:
        n = max(n, 0)
    exact = buckets // 2
    if n < exact:
        return bucket + n
    grown = math.log(n / exact) / math.log(max_distance / exact) * (buckets - exact)
    return bucket + min(exact + int(grown + 1e-9), buckets - 1)


@pytest.mark.parametrize(
    ("both_sides", "relative", "expected"), [(True, BOTH, BOTH_BUCKETS), (False, BACK, BACK_BUCKETS)]
)
def test_golden_buckets(both_sides, relative, expected):
    got = log_buckets(-torch.tensor(relative), buckets=32, max_distance=128, bidirectional=both_sides)
    assert got.tolist() == expected
    assert [published(r, both_sides, 32, 128) for r in relative] == expected


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (64, 1000), (7, 12)])
@pytest.mark.parametrize("both_sides", [True, False])
def test_the_bias_is_the_table_at_the_bucket_of_each_distance(buckets, max_distance, both_sides):
    scheme = T5(heads=3, buckets=buckets, max_distance=max_distance).double()
    where = Geometry.from_positions(torch.tensor([0, 1, 5, 40, 41, 200, 1500])[None, :, None], causal=not both_sides)
    bias, places = scheme.bias(where), where.q_pos[0, :, 0].tolist()
    weights = torch.randn(bias.shape, dtype=torch.float64)
    slope = torch.zeros_like(scheme.table)
    for h in range(3):
        for i, p in enumerate(places):
            for j, r in enumerate(places):
                bucket = published(r - p, both_sides, buckets, max_distance)
                assert bias[0, h, i, j] == scheme.table[bucket, h]
                slope[bucket, h] += weights[0, h, i, j]
    (bias * weights).sum().backward()
    assert torch.allclose(scheme.table.grad, slope, rtol=0, atol=1e-13)


@pytest.mark.parametrize("both_sides", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 5), (10, 7), (64, 1000)])
def test_many_offsets_have_the_buckets_that_each_has_alone(buckets, max_distance, both_sides):
    offsets = torch.arange(-1100, 1100)
    given = {"buckets": buckets, "max_distance": max_distance, "bidirectional": both_sides}
    alone = torch.cat([log_buckets(offset, **given) for offset in offsets.split(1)])
    assert log_buckets(offsets, **given).equal(alone)
    assert log_buckets(offsets.view(20, 110), **given).flatten().equal(alone)
    assert log_buckets(offsets + 0.5 * offsets.sign(), **given).equal(alone)


@pytest.mark.parametrize("both_sides", [True, False])
def test_buckets_grow_with_distance_and_stay_in_range(both_sides):
    far = log_buckets(torch.arange(100_000), buckets=32, max_distance=128, bidirectional=both_sides)
    assert (far.diff() >= 0).all()
    assert far[: 8 if both_sides else 16].tolist() == list(range(8 if both_sides else 16))
    assert far.max() == (15 if both_sides else 31)
    assert far[128:].unique().numel() == 1
    for dtype in (torch.float32, torch.float64):
        again = log_buckets(torch.arange(100_000).to(dtype), buckets=32, max_distance=128, bidirectional=both_sides)
        assert again.equal(far)


@pytest.mark.parametrize("buckets", [2, 3, 0])
def test_the_number_of_buckets_must_be_four_at_least(buckets):
    with pytest.raises(ValueError, match=f"at least 4 buckets; got {buckets}; 32 is usual"):
        T5(heads=2, buckets=buckets)


def test_the_far_buckets_must_lie_beyond_the_single_ones():
    with pytest.raises(ValueError, match="got 16 with 32 buckets; give more than 16"):
        T5(heads=2, max_distance=16)


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="T5 takes positions with 1 axis; got 2 axes"):
        T5(heads=2).at(Geometry.grid(2, 2))


@pytest.mark.parametrize("both_sides", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (64, 1000)])
def test_it_agrees_with_transformers(both_sides, buckets, max_distance):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    configuration = pytest.importorskip("transformers.models.t5.configuration_t5")
    relative = torch.arange(-3000, 3001)
    theirs = t5.T5Attention._relative_position_bucket(relative, both_sides, buckets, max_distance)
    ours = log_buckets(-relative, buckets=buckets, max_distance=max_distance, bidirectional=both_sides)
    assert ours.equal(theirs)
    config = configuration.T5Config(
        d_model=8,
        d_kv=4,
        num_heads=2,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=not both_sides,
    )
    layer = t5.T5Attention(config, has_relative_attention_bias=True)
    scheme = T5(heads=2, buckets=buckets, max_distance=max_distance)
    with torch.no_grad():
        scheme.table.copy_(layer.relative_attention_bias.weight)
    where = Geometry.full(50) if both_sides else Geometry.causal(50)
    assert scheme.bias(where).equal(layer.compute_bias(50, 50))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_a_placed_scheme_kept_over_an_optimiser_step_is_refused(grad, fused):
    scheme, where = T5(heads=2), Geometry.causal(9)
    at, (q, k, v) = scheme.at(where), torch.randn(3, 1, 2, 9, 4)
    # fused kernels change parameters without a new version
    optimiser = torch.optim.SGD(scheme.parameters(), lr=1.0, fused=fused)
    scheme.table.grad = torch.ones_like(scheme.table)
    with torch.set_grad_enabled(grad):
        first, again = attend(q, k, v, at), attend(q, k, v, at)
        assert torch.equal(first, again)
        optimiser.step()
        with pytest.raises(
            ValueError, match=r"serves one forward pass; got one whose parameters have changed .*; place"
        ):
            attend(q, k, v, at)
        attend(q, k, v, scheme.at(where))


def test_a_placed_scheme_made_without_gradients_serves_for_training():
    scheme, where = T5(heads=2), Geometry.causal(9)
    at, (q, k, v) = scheme.at(where), torch.randn(3, 1, 2, 9, 4)
    with torch.no_grad():
        exact = attend(q, k, v, at)
    out = attend(q, k, v, at)
    torch.testing.assert_close(out, exact)
    assert torch.autograd.grad(out.sum(), scheme.table)[0].abs().sum() > 0
    frozen = T5(heads=2).requires_grad_(False)
    at = frozen.at(where)
    attend(q, k, v, at)
    frozen.requires_grad_()
    assert torch.autograd.grad(attend(q, k, v, at).sum(), frozen.table)[0].abs().sum() > 0


@pytest.mark.parametrize("both_sides", [True, False])
def test_positions_beyond_any_integer_share_the_last_bucket(both_sides):
    for far in (1e30, 3e38):
        offset = torch.tensor([[far, 500.0], [-far, 500.0]]).T - torch.tensor([[-far, 0.0], [far, 0.0]]).T
        got = log_buckets(offset, buckets=32, max_distance=128, bidirectional=both_sides)
        assert got.tolist() == ([[15, 31], [15, 15]] if both_sides else [[31, 0], [31, 31]])


def test_with_a_table_per_layer_layers_learn_apart():
    plain, apart = (
        Decoder(Shape(vocabulary=5, width=8, layers=3, heads=2, scheme=scheme))
        for scheme in ("t5", "t5:per_layer=true")
    )
    assert (len(plain.schemes), len(apart.schemes)) == (1, 3)
    assert apart.scheme_of_layer == [0, 1, 2]
    apart(torch.tensor([[1, 2, 3]])).sum().backward()
    gradients = [scheme.table.grad for scheme in apart.schemes]
    assert all(grad.any() for grad in gradients)
    assert not gradients[0].equal(gradients[1])
