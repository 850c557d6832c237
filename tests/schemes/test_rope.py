import math

import pytest
import torch

from ordinate import Geometry, Rope
from ordinate.testing import assert_as_close

HALF_TO_PAIRS = {"interleaved": lambda m, d: (2 * m, 2 * m + 1), "half": lambda m, d: (m, m + d // 2)}


def loop(x, positions, layout, theta=10_000.0):
    # RoFormer, equation 34: each pair is turned by m theta_i, theta_i = 10000^(-2(i-1)/d)
    d = x.shape[-1]
    rows = []
    for token, p in enumerate(positions):
        channels = [None] * d
        for m in range(d // 2):
            angle = p * theta ** (-2 * m / d)
            first, second = HALF_TO_PAIRS[layout](m, d)
            a, b = x[..., token, first], x[..., token, second]
            channels[first] = a * math.cos(angle) - b * math.sin(angle)
            channels[second] = a * math.sin(angle) + b * math.cos(angle)
        rows.append(torch.stack(channels, -1))
    return torch.stack(rows, -2)


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def column(positions):
    return torch.tensor(positions)[None, :, None]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("d", [2, 6, 64])
def test_it_is_the_rotation_of_the_paper_forward_and_backward(layout, d):
    scheme, positions = Rope(head_width=d, layout=layout), [0, 1, 7, 129]
    q = drawn(2, 3, 4, d).requires_grad_()
    weights = drawn(2, 3, 4, d, seed=1)
    for hook in (scheme.encode_query, scheme.encode_key):
        out, exact = hook(q, column(positions)), loop(q, positions, layout)
        assert_as_close(out, exact, exact)
        (slope,) = torch.autograd.grad((out * weights).sum(), q)
        (expected,) = torch.autograd.grad((exact * weights).sum(), q)
        assert_as_close(slope, expected, expected, what="gradient")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_layouts_are_one_scheme_after_a_permutation_bit_by_bit(dtype):
    d, pos = 16, column([0, 3, 1000, 2**24 + 1])
    order = torch.cat((torch.arange(0, d, 2), torch.arange(1, d, 2)))
    q = drawn(1, 2, 4, d, dtype=dtype)
    interleaved = Rope(head_width=d, layout="interleaved").encode_query(q, pos)
    assert interleaved[..., order].equal(Rope(head_width=d).encode_query(q[..., order], pos))


@pytest.mark.parametrize(("a", "b"), [(1, 2), (7, 63), (1000, 32_768), (0.5, 0.25)])
def test_turning_twice_is_turning_by_the_sum(a, b):
    scheme, q = Rope(head_width=16), drawn(1, 2, 1, 16)
    twice = scheme.encode_query(scheme.encode_query(q, column([a])), column([b]))
    once = scheme.encode_query(q, column([a + b]))
    assert torch.allclose(twice, once, rtol=0, atol=1e-10)


def test_position_zero_turns_nothing_bit_by_bit():
    q = drawn(1, 2, 1, 16)
    assert Rope(head_width=16).encode_query(q, column([0])).equal(q)


@pytest.mark.parametrize(
    ("dtype", "allowed"),
    [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 4e-3), (torch.float16, 1e-3)],
)
def test_the_norm_is_kept(dtype, allowed):
    q = drawn(1, 8, 5, 64, dtype=dtype)
    out = Rope(head_width=64).encode_query(q, column([0, 1, 129, 32_768, 2**24 + 1]))
    assert (out.double().norm(dim=-1) / q.double().norm(dim=-1) - 1).abs().max() <= allowed


@pytest.mark.parametrize("shift", [1, 1000, 32_768, 10**6, 2**24, 2**24 + 1])
@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float64, 5e-8), (torch.float32, 2e-5), (torch.bfloat16, 0.25)])
def test_scores_depend_on_the_difference_only_however_far(shift, dtype, allowed):
    scheme, q, k = Rope(head_width=64), drawn(1, 2, 4, 64, dtype=dtype), drawn(1, 2, 4, 64, seed=1, dtype=dtype)

    def scores(pos):
        return scheme.encode_query(q, pos).double() @ scheme.encode_key(k, pos).double().mT

    still, moved = scores(column([0, 3, 9, 40])), scores(column([0, 3, 9, 40]) + shift)
    assert (moved - still).abs().max() <= allowed


def test_a_mismatched_layout_is_another_scheme():
    q, k, pos = drawn(1, 1, 4, 8), drawn(1, 1, 4, 8, seed=1), column([0, 1, 2, 3])
    half, pairs = Rope(head_width=8), Rope(head_width=8, layout="interleaved")
    right = half.encode_query(q, pos) @ half.encode_key(k, pos).mT
    wrong = half.encode_query(q, pos) @ pairs.encode_key(k, pos).mT
    assert (right - wrong).abs().max() > 0.1


@pytest.mark.parametrize("width", [7, 0, -2])
def test_the_head_width_must_be_even(width):
    with pytest.raises(ValueError, match=f"rope needs an even head width; got {width}; choose heads that divide"):
        Rope(head_width=width)


def test_theta_must_be_above_zero():
    with pytest.raises(ValueError, match=r"theta must be above zero; got 0.0; give a positive theta"):
        Rope(head_width=8, theta=0.0)


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="Rope takes positions with 1 axis; got 2 axes; choose a scheme"):
        Rope(head_width=8).at(Geometry.grid(2, 2))


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_it_agrees_with_llama(theta):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    configuration = pytest.importorskip("transformers.models.llama.configuration_llama")
    config = configuration.LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )
    q, k, pos = drawn(1, 2, 50, 32, dtype=torch.float32), drawn(1, 2, 50, 32, seed=1).float(), torch.arange(50)[None]
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, pos)
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin)
    scheme = Rope(head_width=32, theta=theta)
    ours = scheme.encode_query(q, pos[..., None]), scheme.encode_key(k, pos[..., None])
    # their angles are in float32
    assert all((one - other).abs().max() < 2e-5 for one, other in zip(ours, theirs, strict=True))


def test_it_agrees_with_gptj_interleaved():
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    q, pos = drawn(1, 2, 50, 32, dtype=torch.float32), torch.arange(50)
    sin, cos = gptj.create_sinusoidal_positions(50, 32)[None].chunk(2, -1)
    theirs = gptj.apply_rotary_pos_emb(q.transpose(1, 2), sin, cos).transpose(1, 2)
    ours = Rope(head_width=32, layout="interleaved").encode_query(q, pos[None, :, None])
    assert (ours - theirs).abs().max() < 2e-5
