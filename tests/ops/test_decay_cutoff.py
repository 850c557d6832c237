import math

import pytest
import torch

from ordinate import Geometry
from ordinate.ops import decay_cutoff
from ordinate.ops.decay_cutoff import GROUP, group_scores, relevant_keys
from ordinate.ops.offset_bias_attention import masked_table
from ordinate.schemes import Alibi
from ordinate.testing.backend import random_qkv

BLOCK = 32
REAL = torch.arange(400) < torch.tensor([[400], [310]])
WHERES = [
    Geometry.causal(400),
    Geometry.causal(300, cached=70),
    Geometry.causal(400, window=90),
    Geometry.full(400),
    Geometry.full(400, window=90),
    Geometry.packed([190, 210]),
    Geometry.packed([210, 190], causal=False),
    Geometry.padded(REAL),
    Geometry.padded(REAL.flip(1), causal=False),
    Geometry.cross(400, 400, real=REAL.flip(1)),
]


def tables(where):
    """Biases that fall with the distance: linearly (ALiBi), and with a power of it."""
    linear = masked_table(Alibi(heads=4).at(where).offset_table, where, 4, torch.float32)
    offset = where.shape[0] - 1 + where.start - torch.arange(linear.shape[1])
    power = -12.0 * torch.arange(1, 5)[:, None] * offset.abs().float().log1p()
    return [linear, power.where(linear.isfinite(), linear)]


def weights_of(q, k, table, where, scale, cap):
    scores = (q.double() @ k.double().repeat_interleave(4 // k.shape[1], 1).mT) * scale
    scores = cap * (scores / cap).tanh() if cap else scores
    offset = torch.arange(k.shape[2]) - where.start - torch.arange(q.shape[2])[:, None]
    scores = scores + table[:, offset + q.shape[2] - 1 + where.start].double()
    return scores.masked_fill(~where.visible[:, None], -math.inf).softmax(-1).nan_to_num(0.0)


def outside(ranges, queries, keys):
    """Whether each pair is left out."""
    first, stop = (x.repeat_interleave(BLOCK, 2)[:, :, :queries, None] for x in ranges)
    return (torch.arange(keys) < first), (torch.arange(keys) >= stop)


@pytest.mark.parametrize("scale", [8**-0.5, -1.0])
@pytest.mark.parametrize("cap", [0.0, 2.0])
@pytest.mark.parametrize("where", WHERES, ids=str)
def test_what_is_skipped_weighs_less_than_a_rounding(where, cap, scale):
    q, k, _ = (x.detach() for x in random_qkv(where, heads=4, kv_heads=2, dtype=torch.float32))
    for table in tables(where):
        before, after = outside(relevant_keys(q, k, table, where, scale, BLOCK), *where.shape)
        assert before[:, 0].any()
        assert after[:, 0].any() or where.is_causal
        assert (weights_of(q, k, table, where, scale, cap) * (before | after)).sum(-1).max() <= 2**-26


def test_queries_whose_own_key_is_padding_see_the_others(monkeypatch):
    where = WHERES[-1]
    q, k, _ = (x.detach() for x in random_qkv(where, heads=4, kv_heads=2, dtype=torch.float32))
    table, hidden = tables(where)[0], (where.q_document != where.k_document)[:, None]

    def left_out():
        pairs = torch.stack(outside(relevant_keys(q, k, table, where, 8**-0.5, BLOCK), *where.shape)).any(0)
        return (weights_of(q, k, table, where, 8**-0.5, 0.0) * pairs).sum(-1).max()

    assert left_out() <= 2**-26
    # a mutant: they are taken for padding, which sees nothing
    monkeypatch.setattr(decay_cutoff, "_least_in_documents", lambda least, where: least.masked_fill(hidden, math.inf))
    assert left_out() > 0.5


@pytest.mark.parametrize("where", WHERES[3:], ids=str)
def test_a_side_counted_one_block_too_short_is_noticed(where, monkeypatch):
    q, k, _ = (x.detach() for x in random_qkv(where, heads=4, kv_heads=2, dtype=torch.float32))
    whole = decay_cutoff._count_below
    monkeypatch.setattr(decay_cutoff, "_count_below", lambda *given: whole(*given) + BLOCK)
    left_out = torch.zeros(())
    for table in tables(where):
        pairs = torch.stack(outside(relevant_keys(q, k, table, where, 8**-0.5, BLOCK), *where.shape)).any(0)
        left_out = left_out.maximum((weights_of(q, k, table, where, 8**-0.5, 0.0) * pairs).sum(-1).max())
    assert left_out > 2**-26


@pytest.mark.parametrize("queries", [1, GROUP - 1, GROUP, 2 * GROUP, 3 * GROUP + 5])
def test_the_mean_score_is_that_of_the_last_whole_group(queries):
    q, k = torch.randn(2, 2, 3, queries, 8), torch.randn(2, 2, 1, queries, 8)
    found = group_scores(q, k, 0.7, 2 * GROUP)
    for i in range(queries):
        end = (i + 1) // GROUP * GROUP
        exact = (q[..., i, :] * k[..., end - GROUP : end, :].mean(3)).sum(-1) * 0.7 if end else -math.inf
        torch.testing.assert_close(found[..., i], torch.as_tensor(exact).expand_as(found[..., i]))


def test_recent_keys_together_leave_out_more_than_a_query_whose_own_key_weighs_little(monkeypatch):
    where = Geometry.causal(1024)
    q = torch.ones(1, 4, 1024, 8)
    k = q.clone()
    k[:, :, ::5] = -1
    (table, _) = tables(where)
    first, _ = relevant_keys(q, k, table, where, 0.5, BLOCK)
    nothing = lambda q, k, scale, step: q.new_full(q.shape[:4], -math.inf)  # noqa: E731
    monkeypatch.setattr(decay_cutoff, "group_scores", nothing)
    alone, _ = relevant_keys(q, k, table, where, 0.5, BLOCK)
    # 6 units of the score and the log of 64 keys, less their mean bias, by the slope 1/16
    assert (first - alone)[0, 1, -1] > 60
    assert (first >= alone).all()
