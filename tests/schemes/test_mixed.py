import math

import pytest
import torch

from ordinate import Geometry
from ordinate.ops.heads import repeat_for_heads
from ordinate.ops.rotate import Rotation
from ordinate.schemes.mixed import Mixed
from ordinate.testing import assert_as_close, check_scheme

PLACES = {"interleaved": lambda m, pairs: (2 * m, 2 * m + 1), "half": lambda m, pairs: (m, m + pairs)}


def loop(x, positions, frequencies, layout):
    # a token's angle is the sum over axes of place times the head's frequency; x and frequencies with as many heads
    pairs = frequencies.shape[-1]
    heads = []
    for h in range(x.shape[1]):
        rows = []
        for token, place in enumerate(positions):
            channels = list(x[:, h, token].unbind(-1))
            for m in range(pairs):
                angle = sum(p * frequencies[a, h, m] for a, p in enumerate(place))
                first, second = PLACES[layout](m, pairs)
                u, v = x[:, h, token, first], x[:, h, token, second]
                channels[first] = u * torch.cos(angle) - v * torch.sin(angle)
                channels[second] = u * torch.sin(angle) + v * torch.cos(angle)
            rows.append(torch.stack(channels, -1))
        heads.append(torch.stack(rows, -2))
    return torch.stack(heads, 1)


def drawn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def grid(*sizes):
    return torch.cartesian_prod(*(torch.arange(size) for size in sizes))[None]


@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", PLACES)
@pytest.mark.parametrize(("sizes", "width"), [((3, 4), 8), ((3, 2), 10), ((2, 3, 2), 14)])
def test_it_is_the_rotation_of_the_paper_forward_and_backward(layout, sizes, width):
    scheme = Mixed(head_width=width, heads=4, kv_heads=2, axes=len(sizes), layout=layout).double()
    pos = grid(*sizes)
    for hook, heads in ((scheme.encode_query, 4), (scheme.encode_key, 2), (scheme.encode_key, 4)):
        x, weights = (
            drawn(2, heads, pos.shape[1], width).requires_grad_(),
            drawn(2, heads, pos.shape[1], width, seed=1),
        )
        out = hook(x, pos)
        own = scheme.frequencies.repeat_interleave(heads // 2, 1)
        exact = loop(x, pos[0].tolist(), own, layout)
        slopes = torch.autograd.grad((out * weights).sum(), (x, scheme.frequencies))
        expected = torch.autograd.grad((exact * weights).sum(), (x, scheme.frequencies))
        assert_as_close(out, exact, exact)
        for slope, other in zip(slopes, expected, strict=True):
            assert_as_close(slope, other, other, what="gradient")


def test_heads_are_initialised_as_in_the_published_code():
    scheme, d = Mixed(head_width=16, heads=3, theta=10.0), 16
    first, second = scheme.frequencies.detach().double()
    for h in range(3):
        angle = math.atan2(second[h, 0], first[h, 0])
        for m in range(4):
            length = 10.0 ** (-4 * m / d)
            for block, turned in ((0, angle), (1, math.pi / 2 + angle)):
                assert first[h, 4 * block + m] == pytest.approx(length * math.cos(turned), abs=1e-6)
                assert second[h, 4 * block + m] == pytest.approx(length * math.sin(turned), abs=1e-6)
    assert first[:, 0].unique().numel() == 3


def test_three_axes_are_initialised_with_orthogonal_directions():
    scheme = Mixed(head_width=12, heads=5, axes=3)
    vectors = scheme.frequencies.detach().unflatten(-1, (3, 2))[..., 0].permute(1, 2, 0)
    assert torch.allclose(vectors @ vectors.mT, torch.eye(3).expand(5, 3, 3), rtol=0, atol=1e-5)


def test_directions_of_whole_axes_give_axial_scores():
    from ordinate.schemes.axial import Axial

    mixed, axial = Mixed(head_width=16, heads=1, layout="half").double(), Axial(head_width=16)
    table = torch.tensor([10_000.0 ** (-m / 4) for m in range(4)], dtype=torch.float64)
    with torch.no_grad():
        mixed.frequencies.copy_(torch.block_diag(table[None], table[None])[:, None])
    q, pos = drawn(1, 1, 12, 16), grid(3, 4)
    assert torch.allclose(mixed.encode_query(q, pos), axial.encode_query(q, pos), rtol=0, atol=1e-12)


def test_scores_see_offsets_only():
    scheme = Mixed(head_width=16, heads=2).double()
    q, k, pos = drawn(1, 2, 12, 16), drawn(1, 2, 12, 16, seed=1), grid(3, 4)

    def scores(pos):
        return scheme.encode_query(q, pos) @ scheme.encode_key(k, pos).mT

    moved = pos + torch.tensor([2**24 + 1, 1000])
    assert torch.allclose(scores(moved), scores(pos), rtol=0, atol=5e-8)
    assert not torch.allclose(scores(pos.flip(-1)), scores(pos), rtol=0, atol=0.1)


def test_channels_left_over_stay_as_they_are():
    q = drawn(1, 2, 8, 15)
    out = Mixed(head_width=15, heads=2, axes=3).encode_query(q, grid(2, 2, 2) + 1)
    assert out[..., 12:].equal(q[..., 12:])
    assert (out[..., :12] != q[..., :12]).all()


def test_turning_by_one_changes_nothing_bit_by_bit():
    x, ones = drawn(2, 3, 4, 6), torch.ones(1, 1, 4, 3)
    assert Rotation(ones, 0 * ones, "half")(x).equal(x)


def test_heads_of_a_group_stand_together():
    assert repeat_for_heads(torch.tensor([[1.0], [2.0]]), 4)[:, 0].tolist() == [1, 1, 2, 2]
    with pytest.raises(ValueError, match="got 3 rows for 4 heads; build the scheme with the model's heads"):
        repeat_for_heads(torch.ones(3, 1), 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_width": 3}, "2 axes need 4 channels of a head; got head_width 3; choose fewer heads"),
        ({"head_width": 5, "axes": 3}, "3 axes need 6 channels of a head; got head_width 5"),
        ({"kv_heads": 3}, "kv_heads must divide heads; got 3 and 4"),
        ({"kv_heads": 0}, "kv_heads must be above zero; got 0"),
        ({"axes": 1}, "mixed takes 2 or 3 axes; got 1"),
        ({"theta": -1.0}, "theta must be above zero; got -1.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Mixed(**{"head_width": 16, "heads": 4} | options)


@pytest.mark.parametrize(("axes", "other"), [(2, 3), (3, 2), (2, 1)])
def test_other_numbers_of_axes_are_refused(axes, other):
    with pytest.raises(ValueError, match=f"Mixed takes positions with {axes} axis; got {other} axes"):
        Mixed(head_width=16, heads=4, axes=axes).at(Geometry.from_positions(torch.zeros(1, 3, other)))


@pytest.mark.extended
@pytest.mark.parametrize("options", [{"axes": 3}, {"layout": "half", "theta": 100.0}])
def test_every_form_keeps_the_contract(options):
    assert not [outcome for outcome in check_scheme(Mixed, **options) if outcome.message]
