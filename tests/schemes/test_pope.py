import math

import pytest
import torch

from ordinate import Geometry
from ordinate.attention._attend import attend
from ordinate.schemes.pope import Pope
from ordinate.testing import assert_as_close, check_scheme


def scores_by_loop(q, k, positions, phases, theta=10_000.0):
    # the paper: a = sum over channels of softplus(q) softplus(k) cos((s - t) theta_c + delta_c)
    d, groups = q.shape[-1], q.shape[1] // k.shape[1]
    rows = []
    for h in range(q.shape[1]):
        for i, t in enumerate(positions):
            for j, s in enumerate(positions):
                score = 0.0
                for c in range(d):
                    what = torch.log1p(torch.exp(q[:, h, i, c])) * torch.log1p(torch.exp(k[:, h // groups, j, c]))
                    phase = torch.clamp(phases[h // groups, 0, c], -2 * math.pi, 0)
                    score = score + what * torch.cos((s - t) * theta ** (-c / d) + phase)
                rows.append(score)
    return torch.stack(rows, -1).reshape(q.shape[0], q.shape[1], len(positions), len(positions))


def drawn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def column(positions):
    return torch.tensor(positions)[None, :, None]


def scores(scheme, q, k, pos):
    q, k = scheme.encode_query(q, pos), scheme.encode_key(k, pos)
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT


@pytest.mark.parametrize("d", [1, 5, 8])
def test_scores_are_those_of_the_paper_forward_and_backward(d):
    scheme, positions = Pope(head_width=d, heads=4, kv_heads=2, init="uniform").double(), [0, 1, 7, 129]
    with torch.no_grad():
        # a phase beyond each end
        scheme.phases[0, 0, 0], scheme.phases[1, 0, 0] = 0.5, -7.0
    q, k = drawn(2, 4, 4, d).requires_grad_(), drawn(2, 2, 4, d, seed=1).requires_grad_()
    weights, leaves = drawn(2, 4, 4, 4, seed=2), (q, k, scheme.phases)
    out, exact = scores(scheme, q, k, column(positions)), scores_by_loop(q, k, positions, scheme.phases)
    assert_as_close(out, exact, exact)
    slopes = torch.autograd.grad((out * weights).sum(), leaves)
    expected = torch.autograd.grad((exact * weights).sum(), leaves)
    for slope, other in zip(slopes, expected, strict=True):
        assert_as_close(slope, other, other, what="gradient")


def test_as_many_key_heads_as_query_heads_have_the_phases_of_their_groups():
    scheme = Pope(head_width=6, heads=4, kv_heads=2, init="uniform").double()
    k, pos = drawn(1, 2, 3, 6), column([0, 5, 9])
    repeated = scheme.encode_key(k.repeat_interleave(2, 1), pos)
    assert repeated.equal(scheme.encode_key(k, pos).repeat_interleave(2, 1))


def test_the_length_of_each_arrow_is_softplus_of_the_content():
    scheme, q = Pope(head_width=6, heads=2, init="uniform").double(), drawn(1, 2, 3, 6)
    for hook in (scheme.encode_query, scheme.encode_key):
        arrows = hook(q, column([0, 5, 2**24 + 1])).unflatten(-1, (2, 6))
        assert torch.allclose(arrows.norm(dim=-2), torch.nn.functional.softplus(q), rtol=0, atol=1e-14)


def test_a_token_is_marked_alike_among_others_and_alone_bit_by_bit():
    scheme, k, pos = Pope(head_width=7, heads=2, init="uniform"), drawn(1, 2, 50, 7).float(), column(list(range(50)))
    whole = scheme.encode_key(k, pos)
    for i in range(50):
        assert scheme.encode_key(k[:, :, i : i + 1], pos[:, i : i + 1]).equal(whole[:, :, i : i + 1])


def test_phases_begin_at_zero_or_anywhere():
    assert (Pope(head_width=64, heads=4).phases == 0).all()
    phases = Pope(head_width=64, heads=4, init="uniform").phases
    assert phases.min() > -2 * math.pi
    assert phases.max() < 0
    assert phases.std().item() == pytest.approx(2 * math.pi / math.sqrt(12), rel=0.1)


def test_phases_at_zero_are_trained():
    scheme, q, k = Pope(head_width=8, heads=2), drawn(1, 2, 4, 8).float(), drawn(1, 2, 4, 8, seed=1).float()
    (slope,) = torch.autograd.grad(scores(scheme, q, k, column([0, 1, 2, 3])).square().sum(), scheme.phases)
    assert (slope != 0).all()


@pytest.mark.parametrize("shift", [1, 1000, 2**24 + 1])
def test_scores_depend_on_the_difference_only_however_far(shift):
    scheme, q, k = (
        Pope(head_width=16, heads=2, init="uniform").double(),
        drawn(1, 2, 4, 16),
        drawn(1, 2, 4, 16, seed=1),
    )
    pos = column([0, 3, 9, 40])
    moved = scores(scheme, q, k, pos + shift) - scores(scheme, q, k, pos)
    assert moved.abs().max() <= 1e-7


def test_attention_with_the_scale_of_the_head_is_that_of_the_formula():
    scheme, where = Pope(head_width=8, heads=2).double(), Geometry.causal(5)
    q, k, v = drawn(1, 2, 5, 8), drawn(1, 2, 5, 8, seed=1), drawn(1, 2, 5, 8, seed=2)
    at = scheme.at(where)
    out = attend(q, k, v, at, scale=8**-0.5)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    plain = (scores_by_loop(q, k, [0, 1, 2, 3, 4], scheme.phases) / 8**0.5).masked_fill(hidden, float("-inf"))
    assert torch.allclose(out, plain.softmax(-1) @ v, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_width": 0}, "head_width must be above zero; got 0"),
        ({"theta": 0.0}, "theta must be above zero"),
        ({"kv_heads": 0}, "kv_heads must be above zero"),
        ({"kv_heads": 3}, "kv_heads must divide heads; got 3 and 4"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Pope(**{"head_width": 16, "heads": 4} | options)


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="Pope takes positions with 1 axis; got 2 axes"):
        Pope(head_width=16, heads=1).at(Geometry.grid(2, 2))


@pytest.mark.extended
def test_both_births_keep_the_contract():
    assert not [outcome for outcome in check_scheme(Pope, init="uniform") if outcome.message]


def test_it_agrees_with_x_transformers_and_pope_pytorch():
    theirs = pytest.importorskip("x_transformers.x_transformers")
    q, k, pos = drawn(1, 2, 50, 32).float(), drawn(1, 2, 50, 32, seed=1).float(), torch.arange(50)
    scheme = Pope(head_width=32, heads=2, init="uniform")
    polar = theirs.PolarEmbedding(32, 2)
    with torch.no_grad():
        polar.learned_bias.copy_(scheme.phases)
    freqs, bias = polar(pos)
    marked = theirs.apply_polar_pos_emb(q, freqs), theirs.apply_polar_pos_emb(k, freqs + bias)
    for one, other in zip(scheme.at(Geometry.causal(50)).encode(q, k).pair, marked, strict=True):
        assert (one - other).abs().max() < 2e-5
    package = pytest.importorskip("PoPE_pytorch.pope")
    embedding = package.PoPE(32, heads=2)
    with torch.no_grad():
        embedding.bias.copy_(scheme.phases[:, 0])
    one, other = package.apply_pope_to_qk(embedding(50), q, k)
    assert (one @ other.mT - scores(scheme, q, k, pos[None, :, None])).abs().max() < 1e-4
