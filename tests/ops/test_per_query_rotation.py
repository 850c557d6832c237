import math

import pytest
import torch

from ordinate.ops import per_query_rotation
from ordinate.ops.rotate import rotate


def drawn(rows, heads, queries, keys, d, pairs, *, shared=False):
    q = torch.randn(rows, heads, queries, d, dtype=torch.float64).requires_grad_()
    k = torch.randn(rows, heads, keys, d, dtype=torch.float64).requires_grad_()
    rows = 1 if shared else rows
    q_pos, k_pos = (torch.randint(0, 100, (rows, count)).double() for count in (queries, keys))
    rates = torch.rand(rows, queries, pairs, dtype=torch.float64)
    return q, k, q_pos, k_pos, rates


def loop(q, k, q_pos, k_pos, rates, layout, magnitude):
    """Turn query i and every key at the rates of query i, one pair of channels after another."""
    rows, heads, queries, _ = q.shape
    pairs = rates.shape[-1]

    def turned(x, position, own):
        out = list(x.unbind(-1))
        for m in range(pairs):
            one, two = (m, m + pairs) if layout == "half" else (2 * m, 2 * m + 1)
            angle = float(position * own[m])
            a, b = x[..., one], x[..., two]
            out[one] = magnitude * (a * math.cos(angle) - b * math.sin(angle))
            out[two] = magnitude * (b * math.cos(angle) + a * math.sin(angle))
        return torch.stack(out, -1)

    scores = []
    for b in range(rows):
        own = b % len(rates)
        for i in range(queries):
            query = turned(q[b, :, i], q_pos[own, i], rates[own, i])
            for j in range(k.shape[2]):
                scores.append((query * turned(k[b, :, j], k_pos[own, j], rates[own, i])).sum(-1))
    return torch.stack(scores, -1).reshape(heads, rows, queries, k.shape[2]).transpose(0, 1)


def related(q, k, q_pos, k_pos, rates, layout, magnitude):
    return per_query_rotation.per_query_rotary_scores(
        q, k, q_pos[:, :, None] - k_pos[:, None], rates, layout, magnitude
    )


@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("d", "pairs"), [(8, 4), (8, 2), (9, 3), (2, 1)])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("magnitude", [1.0, 1.3])
def test_each_query_turns_itself_and_all_keys_at_its_own_rates(layout, d, pairs, shared, magnitude):
    given = drawn(2, 3, 4, 5, d, pairs, shared=shared)
    scores, expected = (f(*given, layout, magnitude) for f in (related, loop))
    assert scores.shape == (2, 3, 4, 5)
    assert torch.allclose(scores, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(scores)
    slopes, wanted = (torch.autograd.grad((x * upstream).sum(), given[:2]) for x in (scores, expected))
    for one, other in zip(slopes, wanted, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_one_set_of_rates_for_all_queries_is_the_rotation(layout):
    q, k, q_pos, k_pos, rates = drawn(2, 3, 4, 5, 8, 4)
    rates = rates[:, :1].expand(2, 4, 4)
    turned = [rotate(x, pos[..., None] * rates[:, :1], layout, 1.2) for x, pos in ((q, q_pos), (k, k_pos))]
    scores = related(q, k, q_pos, k_pos, rates, layout, 1.2)
    assert torch.allclose(scores, turned[0] @ turned[1].mT, rtol=0, atol=1e-12)


@pytest.mark.parametrize("step", [1, 150, 300, 10**9])
def test_blocks_of_queries_of_any_size_give_the_same(step, monkeypatch):
    given = drawn(2, 3, 7, 5, 8, 2)
    whole = related(*given, "half", 1.1)
    # a query takes 60 numbers of a kind here: blocks of 1, 2, 5 and all queries
    monkeypatch.setattr(per_query_rotation, "STEP", step)
    blocks = related(*given, "half", 1.1)
    assert torch.allclose(blocks, whole, rtol=0, atol=1e-13)
    upstream = torch.randn_like(whole)
    slopes, wanted = (torch.autograd.grad((x * upstream).sum(), given[:2]) for x in (blocks, whole))
    assert all(torch.allclose(one, other, rtol=0, atol=1e-13) for one, other in zip(slopes, wanted, strict=True))


def test_a_row_is_as_if_it_were_alone():
    q, k, q_pos, k_pos, rates = drawn(3, 2, 4, 5, 8, 4)
    together = related(q, k, q_pos, k_pos, rates, "half", 1.0)
    for row in range(3):
        one = slice(row, row + 1)
        alone = related(q[one], k[one], q_pos[one], k_pos[one], rates[one], "half", 1.0)
        assert torch.allclose(together[one], alone, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (4, 0), (0, 0)])
def test_nothing_has_no_scores(queries, keys):
    assert related(*drawn(2, 3, queries, keys, 8, 2), "half", 1.0).shape == (2, 3, queries, keys)


def test_far_positions_lose_nothing():
    q, k, q_pos, k_pos, rates = drawn(1, 2, 4, 5, 8, 4)
    near, far = (related(q, k, q_pos + shift, k_pos + shift, rates, "half", 1.0) for shift in (0, 2**24 + 1))
    assert far.equal(near)
    single = per_query_rotation.per_query_rotary_scores(
        q.float(), k.float(), q_pos[:, :, None] - k_pos[:, None], rates, "half"
    )
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), near, rtol=0, atol=1e-5)
