"""Softmax attention in chunks: against a plain loop, piece by piece, padded, packed, and written from a cache."""

from dataclasses import replace
from unittest import mock

import pytest
import torch

from ordinate import Cache, Decoder, Geometry, Shape, generate
from ordinate.core.sequence_shard import SequenceShard
from ordinate.mixers import _projections
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers.softmax import Softmax
from ordinate.models.fixed_cache import DecodingStep
from ordinate.schemes import Alibi, NoPosition, Rope

REAL = torch.arange(11) >= torch.tensor([[0], [4]])
PLACES = {
    "causal": lambda: Geometry.causal(11),
    "two sides": lambda: Geometry.full(11),
    "window": lambda: Geometry.causal(11, window=2),
    "packed": lambda: Geometry.packed([4, 1, 6]),
    "left": lambda: Geometry.padded(REAL),
    "right": lambda: Geometry.padded(REAL.flip(1)),
    "spread": lambda: Geometry.from_positions(2 * torch.arange(11)[None, :, None]),
}
SCHEMES = {"none": NoPosition, "rope": lambda: Rope(head_width=6), "alibi": lambda: Alibi(heads=4)}


def looped(mixer, x, at):
    """Attention one query and one head after the other, from the definition."""
    q, k, v = mixer.project_qkv(x)
    turned, where, bias = at.encode(q, k), at.where, at.bias
    q, k = turned.q, turned.k
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
    for row in range(len(x)):
        place = where.q_pos[min(row, len(where.q_pos) - 1), :, 0].tolist()
        for head in range(q.shape[1]):
            own = head * k.shape[1] // q.shape[1]
            for i in range(q.shape[2]):
                seen = where.visible[min(row, len(where.visible) - 1), i].tolist()
                keys = [
                    j for j in range(k.shape[2]) if seen[j] and place[i] // mixer.chunk == place[j] // mixer.chunk
                ]
                if not keys:
                    continue
                scores = (k[row, own, keys] @ q[row, head, i]) * 6**-0.5
                if bias is not None:
                    scores = scores + bias.expand(len(x), 4, -1, -1)[row, head, i, keys]
                out[row, head, i] = scores.softmax(0) @ v[row, own, keys]
    made = mixer.out(out.transpose(1, 2).flatten(2))
    padded = where.q_document
    return made if padded is None else made * (padded != -1)[..., None]


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PLACES)
def test_it_is_what_a_loop_over_chunks_gives_gradients_too(name, scheme, chunk):
    torch.manual_seed(0)
    mixer = Softmax(width=24, heads=4, kv_heads=2, variant=AttentionOptions(chunk=chunk)).double()
    x, at = torch.randn(2, 11, 24, dtype=torch.float64, requires_grad=True), SCHEMES[scheme]()
    at = at.double().at(PLACES[name]())
    results = []
    for y in (mixer(x, at)[0], looped(mixer, x, at)):
        results.append((y, *torch.autograd.grad(y.square().sum(), [x, *mixer.parameters()])))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("chunk", [1, 4, 5])
@pytest.mark.parametrize("real", [None, torch.arange(9) >= torch.tensor([[0], [3]])])
@torch.no_grad()
def test_a_decoder_gives_the_same_from_a_cache(real, chunk):
    torch.manual_seed(0)
    model = Decoder(
        Shape(vocabulary=11, width=16, heads=2, layers=2, mixer=f"softmax:variant.chunk={chunk},softmax")
    ).eval()
    ids, cache = torch.randint(11, (2, 30)), Cache()
    whole = None if real is None else Geometry.padded(torch.cat([real, torch.ones(2, 21, dtype=torch.bool)], 1))
    expected = model(ids, whole)
    parts = [
        model(part, None if real is None or len(cache) else Geometry.padded(real), cache)
        for part in ids.split([9, 1, 1, 12, 7], 1)
    ]
    seen = slice(None) if real is None else torch.cat([real, torch.ones(2, 21, dtype=torch.bool)], 1)
    torch.testing.assert_close(torch.cat(parts, 1)[seen], expected[seen])


@torch.no_grad()
def test_packed_texts_are_as_alone_and_go_on_as_alone():
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=11, width=16, heads=2, layers=2, mixer="softmax:variant.chunk=3")).eval()
    ids, cache = torch.randint(11, (1, 14)), Cache()
    packed = model(ids[:, :11], Geometry.packed([4, 7]), cache)
    torch.testing.assert_close(packed, torch.cat([model(part) for part in ids[:, :11].split([4, 7], 1)], 1))
    later = torch.cat([model(ids[:, place : place + 1], cache=cache) for place in range(11, 14)], 1)
    torch.testing.assert_close(later, model(ids[:, 4:])[:, 7:])


@torch.no_grad()
def test_a_decoding_step_of_fixed_size_gives_the_same():
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=11, width=16, heads=2, layers=2, mixer="softmax:variant.chunk=4,softmax")).eval()
    ids, cache = torch.randint(11, (2, 12)), Cache()
    expected = model(ids)
    model(ids[:, :3], cache=cache)
    step = DecodingStep(model, cache, 9)
    for place in range(3, 12):
        step.ids.copy_(ids[:, place : place + 1])
        torch.testing.assert_close(step(), expected[:, place])
    first = torch.cat(list(generate(model, ids[:, :3], 9, temperature=0)), 1)
    greedy = ids[:, :3]
    for _ in range(9):
        greedy = torch.cat([greedy, model(greedy)[:, -1:].argmax(-1)], 1)
    assert torch.equal(first, greedy[:, 3:])


def test_no_gradient_crosses_the_border_of_a_chunk():
    mixer, x = Softmax(width=8, heads=2, variant=AttentionOptions(chunk=4)), torch.randn(1, 10, 8, requires_grad=True)
    y, _ = mixer(x, Rope(head_width=4).at(Geometry.causal(10)))
    (found,) = torch.autograd.grad(y[:, 6].sum(), x)
    assert found.abs().sum(-1).ne(0).tolist() == [[False] * 4 + [True] * 3 + [False] * 3]


def test_a_sharded_sequence_has_the_same_chunks():
    mixer, x, scheme = (
        Softmax(width=8, heads=2, variant=AttentionOptions(chunk=3)),
        torch.randn(1, 8, 8),
        Rope(head_width=4),
    )
    whole = Geometry.causal(8)
    shard = SequenceShard.of(whole, 0, 1)
    torch.testing.assert_close(mixer(x, scheme.at(shard))[0], mixer(x, scheme.at(whole))[0])


def test_layers_share_what_depends_on_positions_and_short_texts_need_no_mask():
    model = Decoder(
        Shape(
            vocabulary=11,
            width=16,
            heads=2,
            layers=3,
            mixer="softmax:variant.chunk=4,softmax:variant.chunk=4,softmax",
        )
    )
    ids = torch.randint(11, (1, 9))
    with mock.patch.object(_projections, "in_chunks", side_effect=_projections.in_chunks) as made:
        model(ids)
    assert made.call_count == 1
    with mock.patch.object(_projections, "attend_encoded", side_effect=_projections.attend_encoded) as spy:
        model(ids[:, :4])
    assert all(call.args[2].where.is_plain_causal for call in spy.call_args_list)


def test_norms_of_encoded_queries_go_with_chunks():
    options = AttentionOptions(qk_norm=True, qk_norm_after=True, qk_norm_kind="nonparametric_rms")
    mixer = Softmax(width=8, heads=2, variant=replace(options, chunk=4)).double()
    usual = Softmax(width=8, heads=2, variant=options).double()
    usual.load_state_dict(mixer.state_dict())
    x, scheme = torch.randn(1, 7, 8, dtype=torch.float64), Rope(head_width=4)
    y, _ = mixer(x, scheme.at(Geometry.causal(7)))
    torch.testing.assert_close(y[:, :4], usual(x[:, :4], scheme.at(Geometry.causal(4)))[0])
    later = Geometry.from_positions(torch.arange(4, 7)[None, :, None])
    torch.testing.assert_close(y[:, 4:], usual(x[:, 4:], scheme.at(later))[0])


def test_chunks_are_of_self_attention_and_hold_a_token():
    with pytest.raises(ValueError, match="chunk must be above zero; got 0"):
        Softmax(width=8, heads=2, variant=AttentionOptions(chunk=0))
    mixer = Softmax(width=8, heads=2, variant=AttentionOptions(chunk=2))
    with pytest.raises(
        ValueError, match="chunk is an option of self-attention; got chunk=2 in cross-attention; leave"
    ):
        mixer.project_context(torch.randn(1, 3, 8), NoPosition(), Geometry.causal(3).k_pos)
