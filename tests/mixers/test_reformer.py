import math
from itertools import pairwise

import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers import reformer
from ordinate.mixers.reformer import Reformer
from ordinate.ops import hashing
from ordinate.ops.hashing import CandidatePairs
from ordinate.schemes import NoPosition, Rope
from ordinate.testing import mixer_checks, run_check
from ordinate.testing.mixer import MixerCase

CHECKS = {check.name: check for check in mixer_checks()}
FORMS = [Geometry.causal, Geometry.full]


def build(width=16, heads=2, chunk_length=4, **options):
    torch.manual_seed(1)
    mixer = Reformer(width=width, heads=heads, chunk_length=chunk_length, **options).double()
    with torch.no_grad():
        mixer.project.weight.normal_(std=0.5)
    return mixer


def tokens(batch, n, width=16):
    return torch.randn(batch, n, width, dtype=torch.float64)


def projected(mixer, x):
    q, v = (x @ mixer.project.weight.T).chunk(2, -1)
    return (part.unflatten(-1, (mixer.heads, -1)).transpose(1, 2) for part in (q, v))


def mates_of(buckets, mixer, causal):
    """Which pairs meet in one hash round, by the definition in the docstring, pair by pair."""
    n, reach = len(buckets), mixer.chunk_length
    met = torch.eye(n, dtype=torch.bool)
    ranked = sorted(range(n), key=lambda t: (buckets[t], t))
    place = {t: rank for rank, t in enumerate(ranked)}
    for i in range(n):
        for j in range(n):
            if causal and j > i:
                continue
            if mixer.strict:
                met[i, j] = buckets[i] == buckets[j] and abs(place[i] - place[j]) <= reach
            else:
                chunks = math.ceil(n / reach)
                met[i, j] = (place[i] // reach - place[j] // reach) % chunks in (0, 1)
    return met


def union(mixer, x, causal, scheme=None):
    """Softmax over all pairs that meet in some round; a token itself only if there is no other."""
    q, v = projected(mixer, x)
    buckets = hashing.hash_buckets(q, mixer.directions, mixer.factors)
    rows = []
    for b in range(len(x)):
        heads = []
        for h in range(mixer.heads):
            seen = torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool)
            for round in range(mixer.rounds):
                seen |= mates_of(buckets[b, h, round].tolist(), mixer, causal)
            other = seen & ~torch.eye(len(seen), dtype=torch.bool)
            seen = torch.where(other.any(1, keepdim=True), other, seen)
            asks, keys = (
                q[b, h],
                q[b, h] / (q[b, h].square().mean(-1, keepdim=True) + 1e-6).sqrt() / q.shape[-1] ** 0.5,
            )
            if scheme is not None:
                pos = Geometry.causal(len(asks)).q_pos
                asks, keys = (
                    f(y[None, None], pos)[0, 0] for f, y in ((scheme.encode_query, asks), (scheme.encode_key, keys))
                )
            scores = (asks @ keys.T * mixer.scale).masked_fill(~seen, -torch.inf)
            heads.append(scores.softmax(-1) @ v[b, h])
        rows.append(torch.cat(heads, -1))
    return torch.stack(rows) @ mixer.out.weight.T


OPTIONS = [
    {"mode": mode, "rounds": rounds, "buckets": buckets}
    for mode in ("strict", "chunk")
    for rounds, buckets in ((1, 4), (3, 2), (2, 1), (2, 6))
]


# up to 8 tokens a round all products are made
@pytest.mark.covering(1)
@pytest.mark.parametrize("n", [1, 3, 8, 29, 63])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_is_softmax_over_the_union_of_all_who_meet(options, form, n):
    mixer, x = build(**options), tokens(2, n).requires_grad_()
    y, _ = mixer(x, NoPosition().at(form(n)))
    expected = union(mixer, x, form == Geometry.causal)
    assert torch.allclose(y, expected, atol=1e-12)
    weights, leaves = torch.randn_like(y), [x, *mixer.parameters()]
    pairs = zip(*(torch.autograd.grad((out * weights).sum(), leaves) for out in (y, expected)), strict=True)
    assert all(torch.allclose(one, other, atol=1e-11) for one, other in pairs)


def test_a_scheme_marks_queries_and_keys_after_the_hash():
    mixer, x, rope = build(rounds=2, buckets=4), tokens(1, 29), Rope(head_width=8)
    assert torch.allclose(mixer(x, rope.at(Geometry.causal(29)))[0], union(mixer, x, True, rope), atol=1e-12)


def full(mixer, x, causal):
    """Shared-QK attention without hashing."""
    q, v = projected(mixer, x)
    scores = (q @ reformer._unit(q).mT * mixer.scale).masked_fill(torch.eye(x.shape[1], dtype=torch.bool), -1e5)
    if causal:
        scores = scores.masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -1e9)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ mixer.out.weight.T


@pytest.mark.covering(1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [40, 64, 67])
@pytest.mark.parametrize(
    "options",
    [
        {"buckets": 1, "chunk_length": 67, "rounds": 1},
        {"buckets": 1, "chunk_length": 67, "rounds": 1, "divided": True},
        {"buckets": 4, "chunk_length": 34, "mode": "chunk", "rounds": 3},
        {"buckets": 4, "chunk_length": 67, "mode": "chunk", "rounds": 2},
    ],
    ids=str,
)
def test_one_bucket_or_two_chunks_is_full_attention(options, n, form, monkeypatch):
    monkeypatch.setattr(reformer, "dense_lsh_attention", None)
    monkeypatch.setattr(Reformer, "_few", property(lambda self: 0))
    mixer, x = build(**options), tokens(2, n)
    assert torch.allclose(mixer(x, NoPosition().at(form(n)))[0], full(mixer, x, form == Geometry.causal), atol=1e-12)


@pytest.mark.parametrize("mode", ["strict", "chunk"])
@torch.no_grad()
def test_more_rounds_come_nearer_to_full_attention(mode):
    centres = torch.randn(16, 32, dtype=torch.float64)
    x = centres[torch.arange(512) % 16][None] + 0.3 * tokens(1, 512, 32)
    off = []
    for rounds in (1, 2, 4, 8, 16):
        mixer = build(32, 2, 32, mode=mode, rounds=rounds, buckets=16)
        mixer.project.weight.copy_(torch.randn(64, 32, generator=torch.Generator().manual_seed(2)) / 4)
        y, _ = mixer(x, NoPosition().at(Geometry.full(512)))
        off.append((y - full(mixer, x, False)).square().mean().sqrt().item())
    assert all(later < earlier for earlier, later in pairwise(off))
    assert off[-1] < 0.5 * off[0]


@pytest.mark.extended
@pytest.mark.covering(1)
@pytest.mark.parametrize("check", sorted(CHECKS))
@pytest.mark.parametrize(
    "options", [{"chunk_length": 3, "rounds": 2}, {"chunk_length": 2, "rounds": 1, "buckets": 2}], ids=str
)
def test_short_chunks_keep_every_promise(options, check):
    came = run_check(CHECKS[check], MixerCase(Reformer, options))
    assert came.passed or came.skipped_reason, came.message


PARALLEL = [name for name in CHECKS if "padding_on" in name or "packed" in name or "batch" in name or "alone" in name]


@pytest.mark.parametrize("check", [name for name in PARALLEL if "decoding" not in name])
def test_chunk_mode_separates_the_rows_of_a_batch(check):
    CHECKS[check].run(MixerCase(Reformer, {"chunk_length": 2, "rounds": 1, "mode": "chunk"}))


def test_where_chunks_end_depends_on_later_tokens():
    felt = {}
    for mode in ("strict", "chunk"):
        mixer, x = build(mode=mode, rounds=1, buckets=4), tokens(1, 40)
        changed = x.clone()
        changed[:, -1] = -changed[:, -1]
        at = NoPosition().at(Geometry.causal(40))
        felt[mode] = (mixer(x, at)[0] - mixer(changed, at)[0])[:, :-1].abs().max().item()
        assert mixer.strictly_causal == (mode == "strict")
    assert felt["strict"] < 1e-14
    assert felt["chunk"] > 1e-2


def test_chunks_of_the_paper_remember_nothing():
    mixer, x = build(mode="chunk"), tokens(1, 5)
    _, state = mixer(x, NoPosition().at(Geometry.causal(5)))
    assert state is None
    with pytest.raises(ValueError, match="a state is needed exactly if the geometry has past tokens"):
        mixer(x, NoPosition().at(Geometry.causal(5, cached=5)), state)


@torch.no_grad()
def test_what_is_remembered_does_not_grow_without_end():
    mixer, x, at = build(rounds=2, buckets=2, chunk_length=3), tokens(2, 90), NoPosition()
    whole, _ = mixer(x, at.at(Geometry.causal(90)))
    out, state, begin = [], None, 0
    for piece in [1, 20, 1, 1, 1, 40, 1, 5, 20]:
        y, state = mixer(x[:, begin : begin + piece], at.at(Geometry.causal(piece, cached=begin)), state)
        out.append(y)
        begin += piece
        assert state.k.shape[2] == min(begin, 2 * 2 * 3)
    assert torch.allclose(torch.cat(out, 1), whole, atol=1e-12)


def test_directions_are_drawn_anew_when_asked():
    mixer, x = build(rounds=1, buckets=4), tokens(1, 40)
    at = NoPosition().at(Geometry.causal(40))
    before = mixer(x, at)[0]
    mixer.rehash(torch.Generator().manual_seed(5))
    after = mixer(x, at)[0]
    assert not torch.allclose(before, after, atol=1e-3)
    mixer.rehash(torch.Generator().manual_seed(5))
    assert torch.equal(mixer(x, at)[0], after)


def test_no_change_of_types_touches_the_directions():
    mixer = build()
    before = mixer.directions.clone()
    assert torch.equal(mixer.half().bfloat16().float().directions, before)
    assert 0.9 < before.double().std() / 1024 < 1.1


def test_a_saved_model_hashes_as_it_did(tmp_path):
    sizes = {"vocabulary": 11, "width": 16, "heads": 2, "layers": 2, "mixer": "reformer:chunk_length=2,rounds=1"}
    model, text = Decoder(Shape(**sizes)).eval(), torch.randint(0, 11, (1, 40))
    model.blocks[1].mixer.rehash()
    model.save_pretrained(tmp_path)
    assert torch.equal(Decoder.from_pretrained(tmp_path)(text), model(text))
    first, second = (block.mixer.directions for block in model.blocks)
    assert not torch.equal(first, second)


def test_many_buckets_come_from_two_hashes():
    for buckets in (130, 512, 2048):
        factors = build(buckets=buckets).factors
        assert all(factor % 2 == 0 for factor in factors)
        assert buckets <= math.prod(factors) < 1.5 * buckets
        assert sum(factors) < 5 * buckets**0.5
    x = torch.randn(1, 2, 4000, 8)
    found = hashing.hash_buckets(x, build(buckets=512).directions, build(buckets=512).factors)
    assert found.min() >= 0
    assert found.max() < 22 * 24
    assert found.unique().numel() > 500
    assert torch.equal(found, hashing.hash_buckets(3 * x, build(buckets=512).directions, build(buckets=512).factors))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"buckets": 3}, "buckets must be even, or 1; got 3; give an even number, or 1"),
        ({"buckets": 0}, "buckets must be even, or 1; got 0"),
        ({"rounds": 0}, "rounds must be above zero; got 0"),
        ({"chunk_length": 0}, "chunk_length must be above zero; got 0"),
        ({"heads": 3}, "heads must divide width; got width 16, heads 3"),
        ({"mode": "chunks"}, "option mode of Reformer must be .*; got 'chunks'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, match, untyped):
    with pytest.raises(ValueError, match=match):
        Reformer(**{"width": 16, "heads": 2} | options)


MUTANTS = {
    "a pair counts in every round": (
        CandidatePairs,
        "are_candidates",
        lambda kept: lambda self, turn, i, j: kept(self, 0, i, j),
    ),
    "later tokens are seen": (CandidatePairs, "is_visible", lambda kept: lambda self, i, j: kept(self, i, j) | True),
    "tokens look at themselves": (hashing, "SELF_SCORE", lambda kept: 0.0),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_tests_notice(mutant, monkeypatch):
    place, name, change = MUTANTS[mutant]
    mixer, x = build(rounds=2, buckets=4), tokens(1, 40)
    monkeypatch.setattr(place, name, change(getattr(place, name)))
    assert not torch.allclose(mixer(x, NoPosition().at(Geometry.causal(40)))[0], union(mixer, x, True), atol=1e-3)


def test_autocast_changes_no_bucket():
    torch.manual_seed(0)
    mixer, x = Reformer(width=64, heads=4, chunk_length=8, rounds=2, buckets=8), torch.randn(2, 300, 64)
    at = Rope(head_width=16).at(Geometry.causal(300))
    exact, _ = mixer(x, at)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = mixer(x, at)
    # other buckets would give .14
    assert (out - exact).norm() < 0.01 * exact.norm()
