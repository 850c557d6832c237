import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Rope
from ordinate.schemes.xpos import Xpos
from ordinate.testing import assert_as_close, check_scheme

PLACES = {"interleaved": lambda m, d: (2 * m, 2 * m + 1), "half": lambda m, d: (m, m + d // 2)}


def loop(x, positions, layout, sign, centre, base=512.0, gamma=0.4):
    # the paper: theta_i as in rope, zeta_i = (i/(d/2) + gamma)/(1 + gamma), q by zeta^n, k by zeta^-n
    d = x.shape[-1]
    rows = []
    for token, p in enumerate(positions):
        channels = [None] * d
        for m in range(d // 2):
            angle, zeta = p * 10_000.0 ** (-2 * m / d), (m / (d / 2) + gamma) / (1 + gamma)
            scale = zeta ** (sign * (p - centre) / base)
            first, second = PLACES[layout](m, d)
            u, v = x[..., token, first], x[..., token, second]
            channels[first] = (u * math.cos(angle) - v * math.sin(angle)) * scale
            channels[second] = (u * math.sin(angle) + v * math.cos(angle)) * scale
        rows.append(torch.stack(channels, -1))
    return torch.stack(rows, -2)


def drawn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def column(positions):
    return torch.tensor(positions)[None, :, None]


@pytest.mark.parametrize("layout", PLACES)
@pytest.mark.parametrize(("centre", "base", "gamma"), [(0, 512.0, 0.4), (6, 512.0, 0.4), (3, 50.0, 1.0)])
def test_it_is_the_formula_of_the_paper_forward_and_backward(layout, centre, base, gamma):
    scheme, positions = Xpos(head_width=6, layout=layout, centre=centre, scale_base=base, gamma=gamma), [0, 1, 7, 129]
    x, weights = drawn(2, 3, 4, 6).requires_grad_(), drawn(2, 3, 4, 6, seed=1)
    for hook, sign in ((scheme.encode_query, 1), (scheme.encode_key, -1)):
        out, exact = hook(x, column(positions)), loop(x, positions, layout, sign, centre, base, gamma)
        assert_as_close(out, exact, exact)
        (slope,) = torch.autograd.grad((out * weights).sum(), x)
        (expected,) = torch.autograd.grad((exact * weights).sum(), x)
        assert_as_close(slope, expected, expected, what="gradient")


def test_golden_decay():
    # zeta of 4 channels: 0.4/1.4 and 0.9/1.4; one base away each pair has faded by its zeta
    scheme, ones = Xpos(head_width=4, theta=1e300), torch.ones(1, 1, 1, 4, dtype=torch.float64)
    q = scheme.encode_query(ones, column([512]))[0, 0, 0]
    still = torch.tensor([math.cos(512) - math.sin(512), 1.0]) * torch.tensor([0.4 / 1.4, 0.9 / 1.4])
    assert q[:2].tolist() == pytest.approx(still.tolist(), abs=1e-6)


def test_scores_fade_with_distance_whatever_the_centre():
    q, k, pos = drawn(1, 1, 4, 16), drawn(1, 1, 4, 16, seed=1), column([0, 40, 900, 3000])

    def scores(scheme):
        return scheme.encode_query(q, pos) @ scheme.encode_key(k, pos).mT

    plain = scores(Xpos(head_width=16))
    for centre in (1, 1500, 18_000):
        assert torch.allclose(scores(Xpos(head_width=16, centre=centre)), plain, rtol=1e-9, atol=1e-9)
    rope = scores(Rope(head_width=16))
    assert torch.allclose(plain.diagonal(dim1=-2, dim2=-1), rope.diagonal(dim1=-2, dim2=-1), rtol=0, atol=1e-12)
    assert (plain[..., 3, 0].abs() < rope.abs().max() * (1.275 / 1.4) ** (3000 / 512) * 16).all()


@pytest.mark.parametrize("tokens", [6, 7])
def test_it_agrees_with_the_published_forms_in_one_call(tokens):
    # torchscale (half rounded up) and rotary-embedding-torch (down) centre each call on its middle
    x, positions = drawn(1, 2, tokens, 8), list(range(tokens))
    for centre in (tokens // 2, -(-tokens // 2)):
        zeta = (torch.arange(0, 8, 2).double() + 0.4 * 8) / (1.4 * 8)
        scale = zeta ** ((torch.arange(tokens).double() - centre) / 512)[:, None]
        angles = torch.arange(tokens).double()[:, None] * 10_000.0 ** (-torch.arange(0, 8, 2).double() / 8)
        u, v = x[..., 0::2], x[..., 1::2]
        theirs = torch.stack([u * angles.cos() - v * angles.sin(), v * angles.cos() + u * angles.sin()], -1)
        scheme = Xpos(head_width=8, centre=centre, layout="interleaved")
        ours = scheme.encode_query(x, column(positions))
        assert torch.allclose(ours, (theirs * scale[..., None]).flatten(-2), rtol=0, atol=1e-12)
        ours = scheme.encode_key(x, column(positions))
        assert torch.allclose(ours, (theirs / scale[..., None]).flatten(-2), rtol=0, atol=1e-12)


def test_the_farthest_positions_neither_overflow_nor_vanish_in_float32():
    for scheme in (Xpos(head_width=64), Xpos(head_width=64, centre=18_000), Xpos(head_width=64, scale_base=10.0)):
        last = scheme.max_length - 1
        q, pos = drawn(1, 2, 3, 64).float() * 1000, column([0, last // 2, last])
        marked = scheme.encode_query(q, pos), scheme.encode_key(q, pos)
        for out in marked:
            assert out.isfinite().all()
            assert (out.abs() > torch.finfo(torch.float32).tiny).all()
        scores = marked[0] @ marked[1].mT
        assert scores.tril().isfinite().all()


def test_the_maximum_length_is_the_one_in_the_error_message():
    assert Xpos(head_width=64).max_length == 18_131
    assert Xpos(head_width=64, centre=1000).max_length == 19_131
    scheme = Xpos(head_width=64)
    scheme.at(Geometry.from_positions(column([18_130])))
    with pytest.raises(ValueError, match=r"Xpos serves positions 0 to 18130 \(max_length 18131\); got 18131"):
        scheme.at(Geometry.from_positions(column([18_131])))


def test_float16_has_a_shorter_maximum_length():
    scheme, q = Xpos(head_width=64), drawn(1, 1, 1, 64).half()
    assert scheme.encode_key(q, column([3399])).isfinite().all()
    for hook in (scheme.encode_query, scheme.encode_key):
        with pytest.raises(
            ValueError, match=r"in float16 xpos supports positions up to 3399 tokens .* 0; got 3400; use"
        ):
            hook(q, column([3400]))
    assert scheme.encode_key(q.bfloat16(), column([18_000])).isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_width": 7}, "xpos needs an even head width; got head_width 7"),
        ({"centre": -1}, r"centre must lie in \[0, 18130\], so that position 0 is supported; got -1"),
        ({"centre": 20_000}, "got 20000; leave it out, or raise scale_base"),
        ({"scale_base": 0.0}, "scale_base must be above zero"),
        ({"gamma": 0.0}, "gamma must be above zero"),
        ({"theta": -1.0}, "theta must be above zero"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Xpos(**{"head_width": 16} | options)


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="Xpos takes positions with 1 axis; got 2 axes"):
        Xpos(head_width=16).at(Geometry.grid(2, 2))


@pytest.mark.extended
@pytest.mark.parametrize("options", [{"layout": "interleaved", "centre": 32}, {"scale_base": 2048.0, "gamma": 0.2}])
def test_every_form_keeps_the_contract(options):
    assert not [outcome for outcome in check_scheme(Xpos, **options) if outcome.message]


def test_it_agrees_with_local_attention():
    rotary = pytest.importorskip("local_attention.rotary")
    q, k = drawn(1, 2, 100, 32).float(), drawn(1, 2, 100, 32, seed=1).float()
    freqs, scale = rotary.SinusoidalEmbeddings(32, use_xpos=True, scale_base=512)(q)
    theirs = rotary.apply_rotary_pos_emb(q, k, freqs, scale=scale)
    ours = Xpos(head_width=32, centre=50).at(Geometry.causal(100)).encode(q, k)
    for one, other in zip(ours.pair, theirs, strict=True):
        assert (one - other).abs().max() < 2e-5


def test_it_agrees_with_rotary_embedding_torch():
    rotary = pytest.importorskip("rotary_embedding_torch")
    q, k = drawn(1, 2, 100, 32).float(), drawn(1, 2, 100, 32, seed=1).float()
    theirs = rotary.RotaryEmbedding(dim=32, use_xpos=True).rotate_queries_and_keys(q, k)
    scheme = Xpos(head_width=32, centre=50, layout="interleaved")
    for one, other in zip(scheme.at(Geometry.causal(100)).encode(q, k).pair, theirs, strict=True):
        assert (one - other).abs().max() < 2e-5
