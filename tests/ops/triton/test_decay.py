import pytest
import torch

from ordinate.ops.triton.decay import key_spans, needed_keys, query_spans
from ordinate.ops.triton.tiles import Tile

SLOPES = torch.tensor([1.0, 0.4, 0.1, 0.0]).expand(2, -1)
SIZES = [(150, 0, 2, 0.0, torch.float32), (90, 60, 4, 3.0, torch.float16), (150, 0, 1, 0.0, torch.bfloat16)]


def drawn(queries, cached, kv_heads, type, size=1.0):
    q = (size * torch.randn(2, 4, queries, 8)).to(type)
    return q, torch.randn(2, kv_heads, queries + cached, 8).to(type)


@pytest.mark.parametrize(("queries", "cached", "kv_heads", "cap", "type"), SIZES)
def test_what_is_left_out_weighs_less_than_a_rounding(queries, cached, kv_heads, cap, type):
    q, k = drawn(queries, cached, kv_heads, type)
    found = needed_keys(q, k, SLOPES, cached, 8**-0.5, cap)
    scores = q.double() @ k.double().repeat_interleave(4 // kv_heads, 1).mT * 8**-0.5
    scores = cap * (scores / cap).tanh() if cap else scores
    behind = torch.arange(cached, cached + queries)[:, None] - torch.arange(queries + cached)
    scores = (scores - SLOPES[0][:, None, None].double() * behind).masked_fill(behind < 0, float("-inf"))
    left_out = torch.arange(queries + cached) < found[..., None]
    weights = scores.softmax(-1)
    assert (weights * left_out).sum(-1).max() <= 2**-26
    # the bound is of use: heads that look near leave most keys out
    assert found[:, 0, -1].min() > 70
    assert (found[:, 3] == 0).all()


def test_a_number_that_is_not_finite_leaves_nothing_out_for_those_that_may_see_it():
    q, k = drawn(150, 0, 2, torch.float32)
    usual = needed_keys(q, k, SLOPES, 0, 8**-0.5, 0.0)
    for wrong in (float("nan"), float("inf")):
        hurt = k.clone()
        hurt[1, 0, 70, 3] = wrong
        found = needed_keys(q, hurt, SLOPES, 0, 8**-0.5, 0.0)
        assert (found[1, :2] == 0).all()
        assert found[0].equal(usual[0])
        assert found[1, 2:].equal(usual[1, 2:])
        hurt = q.clone()
        hurt[0, 0, 149, 0] = wrong
        assert needed_keys(hurt, k, SLOPES, 0, 8**-0.5, 0.0)[0, 0, 149] == 0
    # products that overflow in 16 bits
    q, k = (torch.full((1, 4, 150, 8), 300.0, dtype=torch.float16) for _ in range(2))
    assert (needed_keys(q, k, 1000 * SLOPES, 0, 8**-0.5, 0.0) == 0).all()


def test_spans_hold_every_needed_key_and_query_and_no_further_tile():
    tile = Tile(16, 32, 4, 1)
    needed = needed_keys(*drawn(150, 20, 2, torch.float32, size=0.5), SLOPES, 20, 8**-0.5, 0.0)
    wanted = torch.arange(170) >= needed[..., None]
    of_keys, of_queries = key_spans(needed, tile), query_spans(needed, tile, 2, 170)
    assert of_keys.shape == (2, 4, 10, 2)
    assert of_queries.shape == (2, 2, 6, 2)
    for b in range(2):
        for h in range(4):
            first = [int(rows.any(0).nonzero()[0]) for rows in wanted[b, h].split(16)]
            assert of_keys[b, h, :, 0].tolist() == first
        for h in range(2):
            pairs = wanted[b, 2 * h : 2 * h + 2].any(0)
            last = [int(columns.any(1).nonzero()[-1]) // 16 for columns in pairs.split(32, 1)]
            assert of_queries[b, h, :, 1].tolist() == [16 * (row + 1) for row in last]
    assert of_queries[:, 0, 0, 1].max() < 160
