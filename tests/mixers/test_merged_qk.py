import math

import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers.merged_qk import MergedQK, MergedQKState
from ordinate.mixers.softmax import Softmax
from ordinate.schemes import Alibi, NoPosition, Rope

WHERES = [Geometry.causal(7), Geometry.full(7), Geometry.packed([3, 4]), Geometry.causal(7, window=3)]


def factored(full: bool) -> tuple[Softmax, MergedQK]:
    """Standard attention and the equivalent merged one: M = W_Q W_K^T for each head, of rank 6."""
    usual = Softmax(width=24, heads=4).double()
    merged = MergedQK(width=24, heads=4, rank=None if full else 6).double()
    with torch.no_grad():
        q, k, v = usual.project.weight.chunk(3)
        merged.project.weight.copy_(v)
        merged.out.weight.copy_(usual.out.weight)
        if full:
            for head, (asked, found) in enumerate(zip(q.split(6), k.split(6), strict=True)):
                merged.matrix[head] = asked.T @ found
        else:
            merged.compare.weight.copy_(torch.cat([q, k]))
    return usual, merged


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("scheme", [NoPosition(), Alibi(heads=4)])
def test_it_equals_attention_whose_matrices_it_merges(scheme, where, full):
    (usual, merged), at = factored(full), scheme.at(where)
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    (y, _), (expected, _) = merged(x, at), usual(x, at)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-13)
    mine, theirs = (torch.autograd.grad(out.square().sum(), x)[0] for out in (y, expected))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)


def test_its_gradients_are_those_of_the_formula():
    merged, where = MergedQK(width=12, heads=3).double(), Geometry.causal(5)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    heads = []
    for head, value in enumerate((x @ merged.project.weight.T).split(4, -1)):
        scores = x @ merged.matrix[head] @ x.mT / math.sqrt(4)
        heads.append(scores.masked_fill(~where.visible, float("-inf")).softmax(-1) @ value)
    plain, (y, _) = torch.cat(heads, -1) @ merged.out.weight.T, merged(x, NoPosition().at(where))
    torch.testing.assert_close(y, plain, rtol=0, atol=1e-13)
    leaves = list(merged.parameters())
    for mine, theirs in zip(*(torch.autograd.grad(out.square().sum(), leaves) for out in (y, plain)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_of_biases_in_the_projections_only_that_of_queries_against_keys_is_left():
    x, (q, k), (a, b) = torch.randn(7, 24).double(), torch.randn(2, 24, 6).double(), torch.randn(2, 6).double()
    whole = ((x @ q + a) @ (x @ k + b).T).softmax(-1)
    # a row's constant falls out of its softmax
    left = (x @ q @ k.T @ x.T + (x @ k @ a)[None]).softmax(-1)
    torch.testing.assert_close(whole, left, rtol=0, atol=1e-13)


def test_rope_cannot_be_merged():
    with pytest.raises(
        ValueError, match="does not support hooks 'encode_key', 'encode_query', used by scheme 'rope'"
    ):
        MergedQK.check_scheme(Rope(head_width=6))
    with pytest.raises(
        ValueError, match="does not support hooks 'encode_key', 'encode_query', used by scheme 'rope'"
    ):
        Decoder(Shape(vocabulary=5, width=24, mixer="merged_qk", scheme="rope"))
    # no single matrix fits both neighbouring tokens and a token with itself
    usual, _ = factored(True)
    asked, found = (part[:6].T[None, None] for part in usual.project.weight.chunk(3)[:2])
    rope = Rope(head_width=6)
    itself, neighbour = (
        rope.encode_query(asked, torch.full((1, 24, 1), distance)) @ rope.encode_key(found, torch.zeros(1, 24, 1)).mT
        for distance in (0.0, 1.0)
    )
    assert (itself - neighbour).norm() > 0.3 * itself.norm()


@pytest.mark.parametrize("rank", [None, 3])
def test_it_remembers_tokens_or_what_heads_make_of_them(rank):
    merged, scheme = MergedQK(width=24, heads=4, rank=rank).double(), Alibi(heads=4)
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    whole, _ = merged(x, scheme.at(Geometry.causal(9)))
    first, state = merged(x[:, :5], scheme.at(Geometry.causal(5)))
    assert state.k.shape == ((2, 1, 5, 24) if rank is None else (2, 4, 5, 3))
    rest, _ = merged(x[:, 5:], scheme.at(Geometry.causal(4, cached=5)), state)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole, rtol=0, atol=1e-13)


def test_a_memory_of_another_batch_is_refused(untyped):
    state = MergedQKState(torch.randn(2, 1, 3, 24), torch.randn(2, 4, 3, 6))
    with pytest.raises(ValueError, match=r"need the same batch size and heads; got \(2, 1, 3, 24\)"):
        MergedQK(width=24, heads=4)(torch.randn(1, 1, 24), NoPosition().at(Geometry.causal(1, cached=3)), state)


def test_a_rank_is_above_zero():
    with pytest.raises(ValueError, match="rank must be above zero; got 0"):
        MergedQK(width=24, heads=4, rank=0)


def test_a_full_matrix_is_initialised_to_the_product_it_replaces():
    merged = MergedQK(width=256, heads=4)
    # 64 products of two numbers of size 0.02
    assert merged.matrix.std().item() == pytest.approx(0.02**2 * math.sqrt(64), rel=0.02)
