import math

import pytest
import torch

from ordinate import Geometry
from ordinate.ops import decay_cutoff
from ordinate.ops.decay_cutoff import relevant_keys
from ordinate.ops.offset_bias_attention import masked_table
from ordinate.ops.score_bounds import ScoreBounds
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


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch):
    monkeypatch.setattr(decay_cutoff, "MIN_KEYS", 0)
    monkeypatch.setattr(decay_cutoff, "MANY_KEYS", 0)


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
        before, after = outside(relevant_keys(q, k, table, where, scale, BLOCK, capped=cap > 0), *where.shape)
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


def spiked(n, every):
    """Queries and keys along one axis, where Cauchy-Schwarz is tight: some keys are long, the last ones are 0."""
    q, k = torch.zeros(1, 4, n, 8), torch.zeros(1, 2, n, 8)
    q[..., 0] = 4.0
    k[..., 0] = torch.where(torch.arange(n) % every == every - 1, 3.0, 0.5)
    k[..., -130:, :] = 0
    return q, k


@pytest.mark.parametrize("every", [1, 5, 16, 64])
@pytest.mark.parametrize("cap", [0.0, 2.0])
def test_what_is_skipped_weighs_less_than_a_rounding_where_the_bounds_are_tight(cap, every):
    where = Geometry.causal(400)
    q, k = spiked(400, every)
    for table in tables(where):
        before, _ = outside(relevant_keys(q, k, table, where, 1.0, BLOCK, capped=cap > 0), *where.shape)
        assert before[:, 0, -1].any()
        assert (weights_of(q, k, table, where, 1.0, cap) * before).sum(-1).max() <= 2**-26


def linear(where, slope):
    keys = where.shape[1]
    return masked_table(slope * (torch.arange(2 * keys - 1) - keys + 1).expand(4, -1), where, 4, torch.float32)


@pytest.mark.parametrize("capped", [True, pytest.param(False, marks=pytest.mark.xfail(strict=True))])
def test_a_soft_cap_allows_only_the_largest_norm(capped):
    where = Geometry.causal(2048)
    q, k = torch.zeros(1, 4, 2048, 8), torch.zeros(1, 2, 2048, 8)
    # the cap makes the scores of far keys that of the own key, which the mean of norms is below
    q[..., 0], k[..., 0] = 1, 57
    k[..., -700:, 0] = 0
    k[..., -1, 0] = 60
    table = linear(where, 1 / 64)
    first, _ = relevant_keys(q, k, table, where, 1.0, 1, capped=capped)
    weights = weights_of(q[:, :, -1:], k, table[:, :2048], Geometry.causal(1, cached=2047), 1.0, 20.0)
    assert weights[0, 0, 0, : first[0, 0, -1]].sum() <= 2**-26


@pytest.mark.parametrize("spread", [1, 4, 16])
def test_the_entries_that_are_skipped_weigh_less_than_the_given_sum(spread):
    n, draw = 90, torch.Generator().manual_seed(0)
    skipped = 0
    for _ in range(60):
        # one long key in each group, so that all have the same bound
        place = torch.randint(spread, (n // spread + 1,), generator=draw).repeat_interleave(spread)[:n]
        norms = torch.where(torch.arange(n) % spread == place, 6.0, 0.1)
        reach = torch.rand(n, generator=draw) / 10 + 1
        falls = torch.rand(2, generator=draw) * 0.2
        offset = torch.arange(2 * n - 1) - n + 1
        table = torch.where(offset < 0, falls[0], falls[1]) * -offset.abs()
        sums = 6 * reach + torch.rand(n, generator=draw) * 10 - 8
        bounds = ScoreBounds(reach[None, None], norms[None, None], sums[None, None])
        entry = torch.arange(n) - torch.arange(n)[:, None] + n - 1
        weights = (reach[:, None] * norms + table[entry]).double().exp()
        for side, place in ((table, entry), (table.flip(0), 2 * n - 2 - entry)):
            left_out = place < decay_cutoff._skipped(bounds, side[None], 1, spread)[0, 0, :, None]
            assert ((weights * left_out).sum(1) <= sums.double().exp()).all()
            skipped += left_out.sum()
    assert skipped > 1000


def test_a_mean_of_norms_without_its_exponentials_is_noticed(monkeypatch):
    where, (q, k) = Geometry.causal(400), spiked(400, 16)
    mean = lambda bounds, spread: bounds.norms.mean(-1, keepdim=True).repeat_interleave(2, 1)  # noqa: E731
    monkeypatch.setattr(ScoreBounds, "largest_norm", mean)
    before, _ = outside(relevant_keys(q, k, tables(where)[0], where, 1.0, BLOCK), *where.shape)
    assert (weights_of(q, k, tables(where)[0], where, 1.0, 0.0) * before).sum(-1).max() > 2**-26


def test_a_mean_of_neighbouring_norms_leaves_out_more_than_the_largest_norm(monkeypatch):
    where, found = Geometry.causal(4096), {}
    q, k, _ = (x.detach() for x in random_qkv(where, heads=4, kv_heads=2, dtype=torch.float32))
    for name, spreads in {"both": (1, 16), "largest": (1,)}.items():
        monkeypatch.setattr(decay_cutoff, "SPREADS", spreads)
        found[name], _ = relevant_keys(q, k, linear(where, 1 / 128), where, 8**-0.5, BLOCK)
    assert (found["both"] >= found["largest"]).all()
    assert (found["both"] - found["largest"])[..., -1].min() > 30


def test_values_that_are_not_finite_leave_out_no_key_of_other_queries():
    where = Geometry.causal(400)
    q, k, _ = (x.detach() for x in random_qkv(where, heads=4, kv_heads=2, dtype=torch.float32))
    for value in (math.nan, math.inf):
        one, other = q.clone(), k.clone()
        one[:, :, 200], other[:, :, 200] = value, value
        whole, _ = relevant_keys(q, k, tables(where)[0], where, 8**-0.5, BLOCK)
        found, _ = relevant_keys(one, k, tables(where)[0], where, 8**-0.5, BLOCK)
        assert (found <= whole).all()
        found, _ = relevant_keys(q, other, tables(where)[0], where, 8**-0.5, BLOCK)
        assert (found == 0).all()


def test_few_keys_are_all_read(monkeypatch):
    where = Geometry.causal(400)
    q, k, _ = (x.detach() for x in random_qkv(where, heads=4, kv_heads=2, dtype=torch.float32))
    monkeypatch.setattr(decay_cutoff, "MIN_KEYS", 401)
    assert relevant_keys(q, k, tables(where)[0], where, 8**-0.5, BLOCK) is None
