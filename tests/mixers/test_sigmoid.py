import math
from dataclasses import replace

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention._attend import attend_with_lse
from ordinate.attention._backend import AttentionCall, ScoreOptions
from ordinate.attention.backends import custom_formula, decode
from ordinate.mixers.sigmoid import Sigmoid
from ordinate.schemes import Alibi, NoPosition, Rope, Shaw
from ordinate.testing.backend import GEOMETRIES, random_qkv

WHERES = [*(make(7) for name, make in GEOMETRIES.items() if name not in ("cross", "cached", "newest"))]


@pytest.mark.covering(1)
@pytest.mark.parametrize("offset", [None, -3.0])
@pytest.mark.parametrize("where", WHERES)
def test_it_is_the_formula_forward_and_backward(where, offset):
    mixer = Sigmoid(width=24, heads=4, kv_heads=2, offset=offset).double()
    at = Alibi(heads=4).at(where)
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    q, k, v = (part.split(6, -1) for part in (x @ mixer.project.weight.T).split(mixer.widths, -1))
    seen, heads = where.visible.expand(2, 7, 7), []
    for head in range(4):
        scores, bias, out = q[head] @ k[head // 2].mT / math.sqrt(6), at.bias.expand(2, 4, 7, 7)[:, head], []
        for row in range(2):
            for i in range(7):
                total = torch.zeros(6, dtype=torch.float64)
                for j in seen[row, i].nonzero().flatten():
                    shift = -math.log(int(seen[row, i].sum())) if offset is None else offset
                    total = total + torch.sigmoid(scores[row, i, j] + bias[row, i, j] + shift) * v[head // 2][row, j]
                out.append(total)
        heads.append(torch.stack(out).unflatten(0, (2, 7)))
    plain = torch.cat(heads, -1) @ mixer.out.weight.T
    y, _ = mixer(x, at)
    torch.testing.assert_close(y, plain, rtol=0, atol=1e-13)
    leaves = [x, *mixer.parameters()]
    for mine, theirs in zip(*(torch.autograd.grad(out.square().sum(), leaves) for out in (y, plain)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tokens", [1, 10, 1000])
def test_weights_sum_to_one_where_scores_are_zero(tokens):
    mixer = Sigmoid(width=8, heads=2).double()
    x = torch.randn(1, tokens, 8, dtype=torch.float64)
    mixer.project.weight.data[:16] = 0
    y, _ = mixer(x, NoPosition().at(Geometry.full(tokens)))
    # sigmoid(-log n) = 1 / (n + 1)
    value = (x @ mixer.project.weight[16:].T).mean(1, keepdim=True) * tokens / (tokens + 1)
    torch.testing.assert_close(y, (value @ mixer.out.weight.T).expand_as(y), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", [NoPosition(), Alibi(heads=4), Shaw(head_width=6)])
@pytest.mark.parametrize("where", [Geometry.causal(40), Geometry.packed([30, 10]), Geometry.causal(40, window=5)])
def test_long_texts_go_by_blocks_of_rows_and_equal_the_whole(scheme, where, monkeypatch):
    mixer = Sigmoid(width=24, heads=4).double()
    x = torch.randn(2, 40, 24, dtype=torch.float64, requires_grad=True)
    scheme = scheme.double()

    def results():
        y, _ = mixer(x, scheme.at(where))
        return y, *torch.autograd.grad(y.square().sum(), [x, *mixer.parameters()])

    whole = results()
    monkeypatch.setattr(custom_formula, "MAX_BLOCK_SCORES", 4 * 2 * 40 * 7)
    q = torch.zeros(2, 4, 40, 6, dtype=torch.float64)
    assert explain(q, q, q, scheme.at(where), score_options=mixer.score_options).backend == "custom_formula"
    for part, full in zip(results(), whole, strict=True):
        torch.testing.assert_close(part, full, rtol=1e-9, atol=1e-12)


def test_decoding_steps_use_the_backend_for_few_queries(monkeypatch):
    mixer, scheme = Sigmoid(width=24, heads=4, kv_heads=2), Rope(head_width=6)
    x = torch.randn(2, 9, 24)
    whole, _ = mixer(x, scheme.at(Geometry.causal(9)))
    _, state = mixer(x[:, :8], scheme.at(Geometry.causal(8)))
    at, q, (k, v) = scheme.at(Geometry.causal(1, cached=8)), torch.zeros(2, 4, 1, 6), torch.zeros(2, 2, 2, 9, 6)
    assert explain(q, k, v, at, score_options=mixer.score_options).backend == "decode"
    torch.testing.assert_close(mixer(x[:, 8:], at, state)[0], whole[:, 8:])
    # the C++ kernel of that backend computes the softmax only
    monkeypatch.setattr(decode, "MIN_CPP_ELEMENTS", 0)
    monkeypatch.setattr(decode.build, "unavailable_reason", lambda kind: None)
    call = AttentionCall(q, k, v, at, 1.0, 0.0, ScoreOptions())
    with torch.no_grad():
        assert decode._cpp_supported(call)
        assert not decode._cpp_supported(replace(call, score_options=mixer.score_options))


def test_a_softmax_only_backend_rejects_the_call():
    q, k, v = random_qkv(Geometry.causal(50), dtype=torch.float32)
    formula = Sigmoid(width=32, heads=4).score_options
    told = explain(q, k, v, NoPosition().at(Geometry.causal(50)), score_options=formula)
    assert told.backend == "reference"
    assert {told.unsupported[name] for name in ("native", "offset_bias", "window", "sdpa")} == {
        "normaliser of the formula is not supported"
    }


def test_there_is_no_log_sum_exp_of_other_weights():
    q, k, v = random_qkv(Geometry.causal(5), dtype=torch.float32)
    at, formula = NoPosition().at(Geometry.causal(5)), Sigmoid(width=32, heads=4).score_options
    with pytest.raises(
        ValueError,
        match=r"the log-sum-exp needs a softmax; got score_options.normaliser; leave score_options.normaliser out",
    ):
        attend_with_lse(q, k, v, at, score_options=formula)


def test_sinks_are_a_part_of_the_softmax():
    formula = Sigmoid(width=32, heads=4).score_options
    with pytest.raises(ValueError, match="sinks need the softmax; got a normaliser too"):
        ScoreOptions(sinks=torch.zeros(4), normaliser=formula.normaliser)


def test_a_cap_bends_scores_before_other_weights_too(monkeypatch):
    where = Geometry.causal(40)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float64))
    formula = ScoreOptions(softcap=0.5, normaliser=Sigmoid(width=32, heads=4).score_options.normaliser)
    at = NoPosition().at(where)
    scores = (q @ k.repeat_interleave(2, 1).mT / math.sqrt(8) / 0.5).tanh() * 0.5
    plain = formula.normaliser(scores, where.visible) @ v.repeat_interleave(2, 1)
    torch.testing.assert_close(attend(q, k, v, at, score_options=formula), plain, rtol=0, atol=1e-12)
    monkeypatch.setattr(custom_formula, "MAX_BLOCK_SCORES", 4 * 2 * 40 * 7)
    torch.testing.assert_close(
        attend(q, k, v, at, score_options=formula, backend="custom_formula"), plain, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("offset", [math.inf, math.nan])
def test_an_offset_is_a_number(offset):
    with pytest.raises(ValueError, match=r"offset must be a finite number; got (inf|nan); leave it out"):
        Sigmoid(width=8, heads=2, offset=offset)
