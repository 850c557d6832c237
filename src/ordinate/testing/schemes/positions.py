"""Encodings depend on positions, not on memory order; blocks are parts of the whole."""

import torch

from ordinate.core.geometry import Geometry
from ordinate.testing.case import HEADS, KV_HEADS, SchemeCase, attention, hook_outputs, random_qkv
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close

BLOCKS = (
    (slice(0, 3), slice(0, 8)),
    (slice(2, 7), slice(1, 6)),
    (slice(5, 8), slice(3, 8)),
    (slice(7, 8), slice(0, 1)),
)


def a_block_of_a_bias_is_the_bias_of_the_block(case: SchemeCase) -> None:
    """Exactly, for any geometry: backends request blocks, which must be parts of one matrix."""
    case.skip_unless_hook("bias")
    scheme = case.scheme(torch.float32)
    given = Geometry.from_positions(torch.tensor([[4, 0, 9, 2, 2, 60, 7, 1], [0, 1, 2, 3, 30, 5, 6, 7]])[..., None])
    padded = Geometry.padded(torch.arange(8)[None] >= torch.tensor([[3], [0]]))
    for where in (Geometry.causal(8), Geometry.full(8), Geometry.packed((5, 3)), given, padded):
        where = case.with_axes(where)
        whole = scheme.bias(where)
        if whole is None:
            continue
        for queries, keys in BLOCKS:
            part = scheme.bias(where.block(queries, keys))
            assert part is not None, "it has a bias for the whole and none for a block"
            assert part.equal(whole[..., queries, keys]), (
                f"the bias of block {queries}, {keys} differs from that of the whole"
            )


def the_scores_of_some_queries_are_rows_of_the_whole(case: SchemeCase) -> None:
    """Rows of `score` and `content_bias`, within the tolerance, as a matrix product may round a block differently."""
    case.skip_unless_hook("score", "content_bias")
    scheme, where = case.scheme(), case.with_axes(Geometry.causal(8))
    q, k, _ = random_qkv(1, 8)
    k = k.repeat_interleave(HEADS // KV_HEADS, 1)
    for name, hook in (("score", scheme.score), ("content bias", scheme.content_bias)):
        whole = hook(q, k, where)
        for rows, _ in BLOCKS:
            part = hook(q[:, :, rows], k, where.block(rows))
            assert (part is None) == (whole is None), f"it has a {name} in one of the two cases only"
            if part is not None and whole is not None:
                exact = whole[..., rows, :]
                assert_as_close(part, exact, exact, what=f"the {name} of queries {rows}")


def the_output_term_of_some_queries_is_rows_of_the_whole(case: SchemeCase) -> None:
    """Rows of `value_bias`, within the tolerance."""
    case.skip_unless_hook("value_bias")
    scheme, where = case.scheme(), case.with_axes(Geometry.causal(8))
    q, k, _ = random_qkv(1, 8)
    weights = (q @ k.repeat_interleave(HEADS // KV_HEADS, 1).mT).softmax(-1)
    whole = scheme.value_bias(weights, where)
    for rows, _ in BLOCKS:
        part = scheme.value_bias(weights[:, :, rows], where.block(rows))
        assert (part is None) == (whole is None), "it has an output term in one of the two cases only"
        if part is not None and whole is not None:
            exact = whole[:, :, rows]
            assert_as_close(part, exact, exact, what=f"the output term of queries {rows}")


def the_bias_of_cached_tokens_is_the_last_rows_of_the_whole(case: SchemeCase) -> None:
    """Exactly: in decoding, the bias of a new token equals its row in the full forward pass."""
    case.skip_unless_hook("bias")
    scheme = case.scheme(torch.float32)
    whole = scheme.bias(case.with_axes(Geometry.causal(9)))
    for new in (1, 4):
        last = scheme.bias(case.with_axes(Geometry.causal(new, cached=9 - new)))
        assert (whole is None) == (last is None), "it has a bias in one of the two cases only"
        if whole is not None and last is not None:
            assert last.equal(whole[..., 9 - new :, :]), f"the last {new} rows differ"


def encodings_depend_on_positions_not_memory_order(case: SchemeCase) -> None:
    """Tokens at positions 4, 0, 9, ... are encoded like tokens 4, 0, 9, ... of a sequence in order."""
    case.skip_unless_hook("embed", "encode_query", "encode_key", "bias")
    scheme = case.scheme()
    order = torch.tensor([4, 0, 9, 2, 2, 11, 7, 1, 3, 5, 6, 8])
    plain = case.with_axes(Geometry.causal(12))
    given = case.with_axes(Geometry.from_positions(order[None, :, None]))
    if "bias" in scheme.hooks:
        bias, other = scheme.bias(plain), scheme.bias(given)
        assert (bias is None) == (other is None), "it has a bias in one of the two cases only"
        if bias is not None and other is not None:
            expected = bias[..., order, :][..., order]
            # the rounding of an MLP of positions may depend on the memory index of a pair
            assert_as_close(other, expected, expected, what="bias depends on memory order, not positions")
    x, (q, k, _) = case.embeddings(1, 12), random_qkv(1, 12)
    for name, tokens, axis in (("embed", x, 1), ("encode_query", q, 2), ("encode_key", k, 2)):
        hook = getattr(scheme, name)
        expected = hook(tokens, plain.q_pos).index_select(axis, order)
        out = hook(tokens.index_select(axis, order), given.q_pos)
        assert out.equal(expected), f"{name} depends on memory order, not positions"


def each_token_is_encoded_independently(case: SchemeCase) -> None:
    """Encoding some of the tokens gives the same bits as encoding all of them."""
    case.skip_unless_hook("embed", "encode_query", "encode_key")
    scheme, where = case.scheme(torch.float32), case.with_axes(Geometry.causal(8))
    x, (q, k, _) = case.embeddings(2, 8, torch.float32), random_qkv(2, 8, torch.float32)
    for name, tokens, axis in (("embed", x, 1), ("encode_query", q, 2), ("encode_key", k, 2)):
        hook, marked = getattr(scheme, name), getattr(scheme, name)(tokens, where.q_pos)
        for index in range(8):
            one = hook(tokens.narrow(axis, index, 1), where.q_pos[:, index : index + 1])
            same = one.equal(marked.narrow(axis, index, 1))
            assert same, f"{name} encodes token {index} differently when it is alone"


def every_position_axis_has_an_effect(case: SchemeCase) -> None:
    """Changing the position of a token along any single axis changes the output of some hook."""
    scheme = case.scheme()
    if max(scheme.axes) == 1 or not scheme.hooks:
        raise InapplicableError("it supports one axis only, or uses no hook")
    for axes in scheme.axes:
        still = hook_outputs(scheme, Geometry.from_positions(torch.ones(1, 5, axes, dtype=torch.long)))
        for axis in range(axes):
            pos = torch.ones(1, 5, axes, dtype=torch.long)
            pos[:, 2, axis] = 4
            moved = hook_outputs(scheme, Geometry.from_positions(pos))
            assert any(not moved[hook].equal(still[hook]) for hook in still), f"axis {axis} of {axes} changes nothing"


def permuting_tokens_with_their_positions_permutes_the_output(case: SchemeCase) -> None:
    """Without a mask, the output depends on positions and not on memory order."""
    model, x, order = case.model(), case.embeddings(2, 8), torch.tensor([5, 2, 7, 0, 3, 1, 6, 4])
    pos = torch.arange(8)[None, :, None]
    # explicit positions in both cases, so that both use the same backend
    out = model(x, case.with_axes(Geometry.from_positions(pos, causal=False)))
    again = model(x[:, order], case.with_axes(Geometry.from_positions(pos[:, order], causal=False)))
    assert_as_close(again, out[:, order], out[:, order], what="the output of permuted tokens")


def positions_may_differ_between_sequences(case: SchemeCase) -> None:
    """With positions per sequence, each equals itself alone."""
    model, x = case.model(), case.embeddings(3, 5)
    pos = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11], [3, 1, 20, 50, 4]])[..., None]
    out = model(x, case.with_axes(Geometry.from_positions(pos)))
    for row in range(3):
        alone = model(x[row : row + 1], case.with_axes(Geometry.from_positions(pos[row : row + 1])))
        assert_as_close(out[row : row + 1], alone, alone, what=f"row {row}")


def grouped_query_heads_equal_repeated_key_heads(case: SchemeCase) -> None:
    """Grouped-query attention equals multi-head attention with repeated key and value heads."""
    scheme, where = case.scheme(), case.with_axes(Geometry.causal(7))
    q, k, v = random_qkv(2, 7)
    grouped = attention(scheme, q, k, v, where)
    k, v = (part.repeat_interleave(HEADS // KV_HEADS, 1) for part in (k, v))
    repeated = attention(scheme, q, k, v, where)
    assert_as_close(grouped, repeated, repeated, what="attention with grouped heads")
