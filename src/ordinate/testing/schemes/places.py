"""Marks follow positions, whatever the place in memory."""

import torch

from ordinate.geometry import Geometry
from ordinate.testing.case import HEADS, KV_HEADS, Case, attention, drawn, marks
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close

CUTS = (
    (slice(0, 3), slice(0, 8)),
    (slice(2, 7), slice(1, 6)),
    (slice(5, 8), slice(3, 8)),
    (slice(7, 8), slice(0, 1)),
)


def a_block_of_a_bias_is_the_bias_of_the_block(case: Case) -> None:
    """Exactly, for any geometry: routes ask for blocks, and must get parts of one whole."""
    case.need_hook("bias")
    scheme = case.scheme(torch.float32)
    given = Geometry.given(torch.tensor([[4, 0, 9, 2, 2, 60, 7, 1], [0, 1, 2, 3, 30, 5, 6, 7]])[..., None])
    padded = Geometry.padded(torch.arange(8)[None] >= torch.tensor([[3], [0]]))
    for where in (Geometry.causal(8), Geometry.full(8), Geometry.packed((5, 3)), given, padded):
        where = case.place(where)
        whole = scheme.bias(where)
        if whole is None:
            continue
        for queries, keys in CUTS:
            part = scheme.bias(where.block(queries, keys))
            assert part is not None, "it has a bias for the whole and none for a block"
            assert part.equal(whole[..., queries, keys]), (
                f"the bias of block {queries}, {keys} is not that of the whole"
            )


def what_some_queries_score_is_part_of_what_all_score(case: Case) -> None:
    """Rows of `score` and `content_bias`, by the tolerance rule, since a product may round a block otherwise."""
    case.need_hook("score", "content_bias")
    scheme, where = case.scheme(), case.place(Geometry.causal(8))
    q, k, _ = drawn(1, 8)
    k = k.repeat_interleave(HEADS // KV_HEADS, 1)
    for name, hook in (("score", scheme.score), ("content bias", scheme.content_bias)):
        whole = hook(q, k, where)
        for rows, _ in CUTS:
            part = hook(q[:, :, rows], k, where.block(rows))
            assert (part is None) == (whole is None), f"it has a {name} in one of both cases only"
            if part is not None and whole is not None:
                exact = whole[..., rows, :]
                assert_as_close(part, exact, exact, what=f"the {name} of queries {rows}")


def what_some_queries_carry_is_part_of_what_all_carry(case: Case) -> None:
    """Rows of `carry`, by the tolerance rule."""
    case.need_hook("carry")
    scheme, where = case.scheme(), case.place(Geometry.causal(8))
    q, k, _ = drawn(1, 8)
    weights = (q @ k.repeat_interleave(HEADS // KV_HEADS, 1).mT).softmax(-1)
    whole = scheme.carry(weights, where)
    for rows, _ in CUTS:
        part = scheme.carry(weights[:, :, rows], where.block(rows))
        assert (part is None) == (whole is None), "it carries in one of both cases only"
        if part is not None and whole is not None:
            exact = whole[:, :, rows]
            assert_as_close(part, exact, exact, what=f"what queries {rows} carry")


def the_bias_of_cached_tokens_is_the_last_rows_of_the_whole(case: Case) -> None:
    """Exactly: a decoder that asks for one row gets what the full pass had."""
    case.need_hook("bias")
    scheme = case.scheme(torch.float32)
    whole = scheme.bias(case.place(Geometry.causal(9)))
    for new in (1, 4):
        last = scheme.bias(case.place(Geometry.causal(new, cached=9 - new)))
        assert (whole is None) == (last is None), "it has a bias in one of both cases only"
        if whole is not None and last is not None:
            assert last.equal(whole[..., 9 - new :, :]), f"the last {new} rows differ"


def marks_follow_positions_not_places(case: Case) -> None:
    """Tokens at positions 4, 0, 9, ... are marked as those of a plain text at 4, 0, 9, ..."""
    case.need_hook("embed", "encode_query", "encode_key", "bias")
    scheme = case.scheme()
    order = torch.tensor([4, 0, 9, 2, 2, 11, 7, 1, 3, 5, 6, 8])
    plain = case.place(Geometry.causal(12))
    given = case.place(Geometry.given(order[None, :, None]))
    if "bias" in scheme.hooks:
        bias, other = scheme.bias(plain), scheme.bias(given)
        assert (bias is None) == (other is None), "it has a bias in one of both cases only"
        if bias is not None and other is not None:
            expected = bias[..., order, :][..., order]
            # a network of the positions may round a pair otherwise in another place
            assert_as_close(other, expected, expected, what="bias counts places, not positions")
    x, (q, k, _) = case.vectors(1, 12), drawn(1, 12)
    for name, tokens, axis in (("embed", x, 1), ("encode_query", q, 2), ("encode_key", k, 2)):
        hook = getattr(scheme, name)
        expected = hook(tokens, plain.q_pos).index_select(axis, order)
        out = hook(tokens.index_select(axis, order), given.q_pos)
        assert out.equal(expected), f"{name} counts places, not positions"


def each_token_is_marked_by_itself(case: Case) -> None:
    """Marking a part of the tokens gives a part of the marked tokens, bit by bit."""
    case.need_hook("embed", "encode_query", "encode_key")
    scheme, where = case.scheme(torch.float32), case.place(Geometry.causal(8))
    x, (q, k, _) = case.vectors(2, 8, torch.float32), drawn(2, 8, torch.float32)
    for name, tokens, axis in (("embed", x, 1), ("encode_query", q, 2), ("encode_key", k, 2)):
        hook, marked = getattr(scheme, name), getattr(scheme, name)(tokens, where.q_pos)
        for place in range(8):
            one = hook(tokens.narrow(axis, place, 1), where.q_pos[:, place : place + 1])
            assert one.equal(marked.narrow(axis, place, 1)), f"{name} marks token {place} otherwise when it is alone"


def every_axis_is_felt(case: Case) -> None:
    """Moving a token along any one axis alone changes what some hook makes of it."""
    scheme = case.scheme()
    if max(scheme.axes) == 1 or not scheme.hooks:
        raise InapplicableError("it takes one axis only, or overrides no hook")
    for axes in scheme.axes:
        still = marks(scheme, Geometry.given(torch.ones(1, 5, axes, dtype=torch.long)))
        for axis in range(axes):
            pos = torch.ones(1, 5, axes, dtype=torch.long)
            pos[:, 2, axis] = 4
            moved = marks(scheme, Geometry.given(pos))
            assert any(not moved[hook].equal(still[hook]) for hook in still), f"axis {axis} of {axes} changes nothing"


def permuting_tokens_with_their_positions_permutes_the_output(case: Case) -> None:
    """Where all see all, the order in memory means nothing: positions say it all."""
    model, x, order = case.model(), case.vectors(2, 8), torch.tensor([5, 2, 7, 0, 3, 1, 6, 4])
    pos = torch.arange(8)[None, :, None]
    # the same route for both: only a plain full geometry could be told apart
    out = model(x, case.place(Geometry.given(pos, causal=False)))
    again = model(x[:, order], case.place(Geometry.given(pos[:, order], causal=False)))
    assert_as_close(again, out[:, order], out[:, order], what="the output of permuted tokens")


def examples_stand_where_they_are_said_to_stand(case: Case) -> None:
    """Positions given per example: each row is as if it were alone."""
    model, x = case.model(), case.vectors(3, 5)
    pos = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11], [3, 1, 20, 50, 4]])[..., None]
    out = model(x, case.place(Geometry.given(pos)))
    for row in range(3):
        alone = model(x[row : row + 1], case.place(Geometry.given(pos[row : row + 1])))
        assert_as_close(out[row : row + 1], alone, alone, what=f"row {row}")


def grouped_heads_equal_repeated_heads(case: Case) -> None:
    """Fewer heads of keys give what as many heads give of which each group is alike."""
    scheme, where = case.scheme(), case.place(Geometry.causal(7))
    q, k, v = drawn(2, 7)
    grouped = attention(scheme, q, k, v, where)
    k, v = (part.repeat_interleave(HEADS // KV_HEADS, 1) for part in (k, v))
    repeated = attention(scheme, q, k, v, where)
    assert_as_close(grouped, repeated, repeated, what="attention with grouped heads")
