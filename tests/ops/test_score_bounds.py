import math

import pytest
import torch

from ordinate import Geometry
from ordinate.ops import score_bounds
from ordinate.ops.offset_bias_attention import masked_table
from ordinate.ops.score_bounds import GROUP, GROUPS, ScoreBounds
from ordinate.schemes import Alibi
from ordinate.testing.backend import random_qkv

WHERES = [
    Geometry.causal(GROUP - 1),
    Geometry.causal(GROUP),
    Geometry.causal(3 * GROUP + 5),
    Geometry.causal(3 * GROUP, cached=70),
    Geometry.causal(5 * GROUP, window=2 * GROUP + 1),
    Geometry.full(4 * GROUP),
    Geometry.packed([100, 150]),
    Geometry.causal((GROUPS + 4) * GROUP + 7),
]


def exact_sums(q, k, table, where, scale):
    scores = (q.double() @ k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).mT) * scale
    offset = torch.arange(k.shape[2]) - where.start - torch.arange(q.shape[2])[:, None]
    scores = scores + table[:, offset + q.shape[2] - 1 + where.start].double()
    return scores.masked_fill(~where.visible[:, None], -math.inf).logsumexp(-1)


def tables(where):
    """Biases that fall, steeply and slowly, that are constant, and that rise with the distance."""
    offset = where.shape[0] - 1 + where.start - torch.arange(sum(where.shape) - 1)
    slopes = torch.tensor([-0.5, -1 / 256, 0.0, 0.02])[:, None]
    return masked_table(slopes * offset.abs(), where, 4, torch.float32)


@pytest.mark.parametrize("scale", [8**-0.5, -2.0])
@pytest.mark.parametrize("where", WHERES, ids=str)
def test_no_sum_of_weights_is_below_its_bound(where, scale):
    q, k, _ = (x.detach() for x in random_qkv(where, heads=4, kv_heads=2, dtype=torch.float32))
    for table in (tables(where), masked_table(Alibi(heads=4).at(where).offset_table, where, 4, torch.float32)):
        gap = exact_sums(q, k, table, where, scale) - ScoreBounds.of(q, k, table, where, scale).least
        assert gap.min() > -1e-4


@pytest.mark.parametrize("where", [WHERES[2], WHERES[4], WHERES[-1]], ids=str)
def test_the_bound_is_near_the_sum_where_scores_are_equal(where):
    n = where.shape[0]
    q, k = torch.ones(1, 4, n, 8), torch.ones(1, 2, n, 8)
    gap = exact_sums(q, k, tables(where), where, 0.1) - ScoreBounds.of(q, k, tables(where), where, 0.1).least
    # a constant bias: what lies beyond the last whole groups is missing
    groups = torch.arange(1, n + 1) // GROUP
    seen = (GROUP * groups.clamp(max=(where.window or n) // GROUP - (where.window is not None))).clamp(
        max=GROUPS * GROUP
    )
    whole = (torch.arange(1, n + 1).clamp(max=where.window or n) / seen.clamp(min=1)).log()
    assert (gap[0, 2] - whole)[groups > 0].abs().max() < 1e-4
    # an own key whose weight is the largest is not much less than the sum
    assert gap[0, 0].max() < 1
    # the last of 9 groups or more, by the shares that are the best
    assert (gap[0, 1, 9 * GROUP :] < 0.4).all()


def test_the_latest_groups_bound_the_sum_by_more_than_the_own_key(monkeypatch):
    where = WHERES[-1]
    q = torch.ones(1, 4, where.shape[0], 8)
    k = q.clone()
    k[:, :, ::5] = -1
    found = ScoreBounds.of(q, k, tables(where), where, 0.5).least
    nothing = lambda self, count: torch.full((4, GROUP * count), -math.inf)  # noqa: E731
    monkeypatch.setattr(score_bounds.RecentGroups, "added", nothing)
    alone = ScoreBounds.of(q, k, tables(where), where, 0.5).least
    assert (found >= alone).all()
    # of every fifth query the own score is -4, and the mean one 2.4, beside the log of some 256 keys
    assert (found - alone)[0, 1].max() > 10


@pytest.mark.parametrize("type", [torch.float64, torch.bfloat16, torch.float16])
def test_bounds_are_computed_in_the_dtype_of_the_table(type):
    where = Geometry.causal(3 * GROUP + 5)
    q, k, _ = (x.detach() for x in random_qkv(where, heads=4, kv_heads=2, dtype=type))
    # products and squares that float16 cannot hold
    q, k = (200 * q, 200 * k) if type == torch.float16 else (q, k)
    found = ScoreBounds.of(q, k, tables(where), where, 1e-4)
    exact = ScoreBounds.of(q.double(), k.double(), tables(where).double(), where, 1e-4)
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
