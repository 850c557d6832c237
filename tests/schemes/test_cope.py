import math
from dataclasses import replace

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes import cope
from ordinate.schemes.cope import Cope
from ordinate.testing import check_scheme

HEADS, HEAD_WIDTH = 2, 3


def born(**options):
    scheme = Cope(head_width=HEAD_WIDTH, **options).double()
    with torch.no_grad():
        scheme.table.normal_()
    return scheme


def drawn(batch, tokens, count=2):
    shape = batch, HEADS, tokens, HEAD_WIDTH
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for _ in range(count)]


def dot(one, other):
    return sum(one[c] * other[c] for c in range(HEAD_WIDTH))


def published(q, k, table, where, scaled_gates=True, scaled_bias=False):
    # gates, positions and interpolation of the paper, one number at a time
    batch, heads, queries, _ = q.shape
    keys, root = k.shape[2], math.sqrt(HEAD_WIDTH)
    visible, places = where.visible.expand(batch, -1, -1).tolist(), where.k_pos.expand(batch, -1, -1)[..., 0].tolist()
    numbers = []
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                for j in range(keys):
                    counted = [t for t in range(keys) if visible[b][i][t] and places[b][t] >= places[b][j]]
                    gates = [(dot(q[b, h, i], k[b, h, t]) / (root if scaled_gates else 1)).sigmoid() for t in counted]
                    count = sum(gates, torch.zeros((), dtype=torch.float64)).clamp(max=len(table) - 1)
                    floor, ceiling = int(count.floor()), int(count.ceil())
                    share = count - floor
                    term = share * dot(q[b, h, i], table[ceiling]) + (1 - share) * dot(q[b, h, i], table[floor])
                    numbers.append(term / (root if scaled_bias else 1))
    return torch.stack(numbers).reshape(batch, heads, queries, keys)


PAD = Geometry.padded(torch.tensor([[False, False, True, True, True], [True, True, True, True, True]]))
GEOMETRIES = {
    "causal": Geometry.causal(5),
    "full": Geometry.full(5),
    "window": Geometry.causal(5, window=2),
    "packed": Geometry.packed([3, 2]),
    "padded": PAD,
    "cached": Geometry.causal(2, cached=3),
    "given": Geometry.from_positions(torch.tensor([[[5], [0], [9], [9], [2]]]), causal=False),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize(
    "options", [{}, {"max_positions": 3}, {"max_positions": 2, "scaled_gates": False}, {"scaled_bias": True}]
)
def test_scores_and_their_gradients_equal_the_paper_number_by_number(name, options):
    scheme, where = born(**options), GEOMETRIES[name]
    q, k = drawn(2, where.shape[0])[0], drawn(2, where.shape[1])[0]
    bias = scheme.content_bias(q, k, where)
    scales = {key: value for key, value in options.items() if key != "max_positions"}
    expected = published(q, k, scheme.table, where, **scales)
    seen = where.visible[:, None]
    torch.testing.assert_close(bias * seen, expected * seen, rtol=0, atol=1e-12)
    upstream = torch.randn_like(bias) * seen
    ours, theirs = (torch.autograd.grad(made, (q, k, scheme.table), upstream) for made in (bias, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [0.1, 10.0])
@pytest.mark.parametrize("name", [*(name for name in GEOMETRIES if name != "given"), "late"])
def test_counting_ends_where_all_have_counted_to_the_end_and_no_earlier(name, size, monkeypatch):
    monkeypatch.setattr(cope, "KEY_CHUNK", 2)
    where = Geometry.packed([9, 3]) if name == "late" else GEOMETRIES[name]
    scheme = born(max_positions=3)
    q, k = (x.detach().mul(size).requires_grad_() for x in (drawn(2, n, 1)[0] for n in where.shape))
    results = []
    for ordered in (True, False):
        # without causal order all keys are counted in one pass; documents separately, since positions restart
        where = replace(where, consecutive=ordered, k_pos=where.k_pos if ordered else _in_memory(where))
        bias = scheme.content_bias(q, k, where) * where.visible[:, None]
        slopes = torch.autograd.grad(bias.sin().sum(), (q, k, scheme.table))
        results.append((bias.detach(), *slopes))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def _in_memory(where):
    return torch.arange(where.shape[1])[None, :, None]


def test_what_hidden_keys_hold_changes_nothing():
    scheme, where = born(), PAD
    q, k = drawn(2, 5)
    other = k.detach().clone()
    other[0, :, :2] = 1e30
    one, two = scheme.content_bias(q, k, where), scheme.content_bias(q, other, where)
    seen = where.visible[:, None].expand_as(one)
    assert one[seen].equal(two[seen])
    (slope,) = torch.autograd.grad(one[seen].square().sum(), k)
    assert (slope[0, :, :2] == 0).all()
    assert (slope[0, :, 2:] != 0).any()


def test_open_gates_count_tokens_and_shut_gates_count_none():
    scheme = born(max_positions=64)
    q = torch.ones(1, 1, 4, HEAD_WIDTH, dtype=torch.float64)
    products = q[0, 0, 0] @ scheme.table.mT
    bias = scheme.content_bias(q, 1e3 * q, Geometry.causal(4))[0, 0]
    assert torch.allclose(bias[3], products[[4, 3, 2, 1]], rtol=0, atol=1e-14)
    bias = scheme.content_bias(q, -1e3 * q, Geometry.causal(4))[0, 0]
    assert torch.allclose(bias, products[0].expand(4, 4), rtol=0, atol=1e-14)


def test_counts_beyond_the_table_share_the_last_row():
    scheme = born(max_positions=3)
    q = torch.ones(1, 1, 50, HEAD_WIDTH, dtype=torch.float64)
    bias = scheme.content_bias(q, 1e3 * q, Geometry.causal(50))[0, 0]
    assert torch.allclose(bias[49, :48], (q[0, 0, 0] @ scheme.table.mT)[2], rtol=0, atol=1e-14)


def test_a_query_that_is_no_number_stays_in_its_row():
    scheme = born()
    q, k = (part.detach() for part in drawn(1, 4))
    q[0, 0, 2] = float("nan")
    bias = scheme.content_bias(q, k, Geometry.full(4))
    assert bias[0, 0, 2].isnan().all()
    assert bias[0, 0, [0, 1, 3]].isfinite().all()


def test_it_is_initialised_to_zero_and_gets_gradients():
    scheme = Cope(head_width=HEAD_WIDTH).double()
    q, k = drawn(1, 4)
    bias = scheme.content_bias(q, k, Geometry.causal(4))
    assert (bias == 0).all()
    bias.sum().backward()
    assert (scheme.table.grad[:2] != 0).all()


@pytest.mark.extended
@pytest.mark.parametrize("options", [{"max_positions": 3}, {"scaled_gates": False}, {"scaled_bias": True}])
def test_every_promise_of_a_scheme_holds(options):
    broken = {came.name: came.message for came in check_scheme(Cope, **options) if came.message}
    assert broken == {}


@pytest.mark.parametrize("positions", [1, 0])
def test_two_positions_are_the_least(positions):
    with pytest.raises(
        ValueError, match=f"cope needs at least 2 positions to distinguish; got {positions}; give more"
    ):
        Cope(head_width=4, max_positions=positions)


def test_the_head_width_must_be_above_zero():
    with pytest.raises(ValueError, match="head_width must be above zero; got 0"):
        Cope(head_width=0)


def test_it_agrees_with_the_listing_in_the_paper():
    # appendix: logits divided, masked, and the encoding added; keys counted from the last one back
    scheme = born(max_positions=4)
    q, k = drawn(2, 6)
    logits = (q @ k.mT / math.sqrt(HEAD_WIDTH)).masked_fill(~torch.ones(6, 6).tril().bool(), float("-inf"))
    places = logits.sigmoid().flip(-1).cumsum(-1).flip(-1).clamp(max=3)
    products = q @ scheme.table.mT
    above, below = (products.gather(-1, row.long()) for row in (places.ceil(), places.floor()))
    share = places - places.floor()
    v = torch.randn_like(q)
    expected = (logits + above * share + below * (1 - share)).softmax(-1) @ v
    out = attend(q, k, v, scheme.at(Geometry.causal(6)))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


def test_it_agrees_with_x_transformers():
    theirs = (
        pytest.importorskip("x_transformers.x_transformers").CoPE(dim=HEAD_WIDTH, heads=HEADS, max_pos=4).double()
    )
    scheme = born(max_positions=4)
    with torch.no_grad():
        theirs.pos_emb.copy_(scheme.table)
    q, k = drawn(2, 6)
    hidden = ~torch.ones(6, 6).tril().bool()
    logits = (q @ k.mT / math.sqrt(HEAD_WIDTH)).masked_fill(hidden, -torch.finfo(torch.float64).max)
    expected, ours = theirs(q, logits), scheme.content_bias(q, k, Geometry.causal(6))
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


def test_vectors_for_another_model_are_refused(untyped):
    q, k = torch.randn(2, 1, HEADS, 4, HEAD_WIDTH + 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="must have as many heads as the queries, or one, and their head width; got"):
        born().content_bias(q, k, Geometry.causal(4))
