"""Which keys a linear bias makes negligible, in Triton's interpreter: test_needed.py runs it in its own process.

TRITON_INTERPRET=1 python -m pytest -W ignore::RuntimeWarning tests/ops/triton/needed_interpreted.py
"""

import importlib

import pytest
import torch

from ordinate.ops.triton import needed as kernels
from ordinate.ops.triton.attention import Problem, prepare
from ordinate.ops.triton.decay import key_spans, query_spans
from ordinate.ops.triton.tiles import Tile
from tests.attention.backends.triton_interpreted import mutate

SLOPES = torch.tensor([1.0, 0.4, 0.1, 0.0]).expand(2, -1)
SIZES = [
    (150, 0, 2, 0, 0.0, torch.float32),
    (90, 60, 4, 0, 3.0, torch.float16),
    (150, 0, 1, 0, 0.0, torch.bfloat16),
    (130, 100, 1, 0, 0.0, torch.float32),
    (300, 10, 2, 65, 0.0, torch.float32),
    (300, 10, 2, 200, 2.0, torch.float32),
]


@pytest.fixture(autouse=True)
def _interpreted():
    assert importlib.import_module("triton").knobs.runtime.interpret


def needed_keys(q, k, slopes, cached, window, scale, cap, v=None):
    v = k if v is None else v
    given = Problem(q, k, v, None, slopes.contiguous(), None, None, None, True, cached, window, 0, False, scale, cap)
    ready = prepare(given)
    return kernels.needed_keys(q, k, given.slopes, ready.where, ready.form(kernels.TILE))


def drawn(queries, cached, kv_heads, type, size=1.0):
    q = (size * torch.randn(2, 4, queries, 8)).to(type)
    return q, torch.randn(2, kv_heads, queries + cached, 8).to(type)


def weights_of(q, k, cached, window, scale, cap):
    """The exact weights of heads with ALiBi biases."""
    scores = q.double() @ k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).mT * scale
    scores = cap * (scores / cap).tanh() if cap else scores
    behind = torch.arange(cached, cached + q.shape[2])[:, None] - torch.arange(k.shape[2])
    hidden = (behind < 0) | (behind >= (window or k.shape[2]))
    return (scores - SLOPES[0][:, None, None].double() * behind).masked_fill(hidden, float("-inf")).softmax(-1)


@pytest.mark.parametrize("scale", [8**-0.5, -(8**-0.5), 0.0])
@pytest.mark.parametrize(("queries", "cached", "kv_heads", "window", "cap", "type"), SIZES)
def test_what_is_left_out_weighs_less_than_a_rounding(queries, cached, kv_heads, window, cap, type, scale):
    q, k = drawn(queries, cached, kv_heads, type)
    found = needed_keys(q, k, SLOPES, cached, window, scale, cap)
    left_out = torch.arange(queries + cached) < found[..., None]
    assert (weights_of(q, k, cached, window, scale, cap) * left_out).sum(-1).max() <= 2**-26
    # the bound is of use: heads that look near leave most keys out
    assert found[:, 0, -1].min() > queries + cached - 80
    assert (found[:, 3] == 0).all()


def test_the_group_of_recent_keys_bounds_a_row_whose_own_key_weighs_little():
    q, k = torch.ones(1, 4, 256, 8), torch.ones(1, 1, 256, 8)
    # every seventh query has a key that is far from it
    k[:, :, ::7] *= -1
    found = needed_keys(q, k, SLOPES, 0, 0, 1.0, 0.0)
    left_out = torch.arange(256) < found[..., None]
    assert (weights_of(q, k, 0, 0, 1.0, 0.0) * left_out).sum(-1).max() <= 2**-26
    # alone such a key would need some 16 more units of the score, that is 40 tokens at this slope
    assert (252 - found[0, 1, 252]) < (18 + 16 + 2) / 0.4
    # outside of a window the group says nothing
    assert 252 - needed_keys(q, k, SLOPES, 0, 64, 1.0, 0.0)[0, 1, 252] > (18 + 16) / 0.4
    # a far key may weigh more than the whole group, and its score is the highest that is possible
    k[:, :, 1] *= 3
    left_out = torch.arange(256) < needed_keys(q, k, SLOPES, 0, 0, 1.0, 0.0)[..., None]
    assert (weights_of(q, k, 0, 0, 1.0, 0.0) * left_out).sum(-1).max() <= 2**-26


def test_a_number_that_is_not_finite_leaves_nothing_out_for_those_that_may_see_it():
    q, k = drawn(150, 0, 2, torch.float32)
    usual = needed_keys(q, k, SLOPES, 0, 0, 8**-0.5, 0.0)
    for wrong in (float("nan"), float("inf")):
        hurt = k.clone()
        hurt[1, 0, 70, 3] = wrong
        found = needed_keys(q, hurt, SLOPES, 0, 0, 8**-0.5, 0.0)
        assert (found[1, :2] == 0).all()
        assert found[0].equal(usual[0])
        assert found[1, 2:].equal(usual[1, 2:])
        # a value of a weight that rounds to nothing makes its output NaN all the same
        assert needed_keys(q, k, SLOPES, 0, 0, 8**-0.5, 0.0, v=hurt).equal(found)
        hurt = q.clone()
        hurt[0, 0, 149, 0] = wrong
        assert needed_keys(hurt, k, SLOPES, 0, 0, 8**-0.5, 0.0)[0, 0, 149] == 0
        # a soft cap is finite where its score is not
        assert (needed_keys(q, k.where(k != k[1, 0, 70, 3], wrong), SLOPES, 0, 0, 8**-0.5, 2.0)[1, :2] == 0).all()
    # products that overflow in 16 bits do not in the kernels of attention either
    q, k = (torch.full((1, 4, 150, 8), 300.0, dtype=torch.float16) for _ in range(2))
    found = needed_keys(q, k, SLOPES, 0, 0, 8**-0.5, 0.0)
    left_out = torch.arange(150) < found[..., None]
    assert (weights_of(q, k, 0, 0, 8**-0.5, 0.0) * left_out).sum(-1).max() <= 2**-26
    assert (needed_keys(1e30 * q.float(), k.float(), SLOPES, 0, 0, 8**-0.5, 0.0) == 0).all()


def test_spans_hold_every_needed_key_and_query_and_no_further_tile():
    tile = Tile(16, 32, 4, 1)
    needed = needed_keys(*drawn(150, 20, 2, torch.float32, size=0.5), SLOPES, 20, 0, 8**-0.5, 0.0)
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


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("where.start + i - far", "where.start + i - far + 9"),
        ("slope / 2 - tl.log", "slope / 2 + tl.log"),
        ("where.scale\n    norms = ", "where.scale + 9\n    norms = "),
        ("- LOG_GROUP", "- 4 * LOG_GROUP"),
        ("highest - mean - LOG_GROUP", "-LOG_GROUP"),
        ("tl.where(found < INFINITY, found, INFINITY)", "found * 0.0"),
    ],
)
def test_a_mutant_is_killed(text, other, monkeypatch, tmp_path):
    mutate("needed", text, other, monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        test_the_group_of_recent_keys_bounds_a_row_whose_own_key_weighs_little()


def test_a_mutant_that_overlooks_values_is_killed(monkeypatch, tmp_path):
    mutate("needed", "found += tl.load(poison, mask=real, other=0.0)", "found += 0.0", monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        test_a_number_that_is_not_finite_leaves_nothing_out_for_those_that_may_see_it()
