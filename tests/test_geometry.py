from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ordinate.geometry import PADDING, Geometry


def seen_by_words(where):
    """Visibility as the docstring says it, one pair after another."""
    queries, keys = where.shape
    rows = where.rows
    out = torch.zeros(rows, queries, keys, dtype=torch.bool)
    for row in range(rows):
        for i in range(queries):
            for j in range(keys):
                place = where.start + i
                after = where.hides_future and j > place
                far = where.window is not None and abs(place - j) > where.window - 1
                apart = False
                if where.q_document is not None:
                    mine = where.q_document[row % where.q_document.shape[0], i]
                    its = where.k_document[row % where.k_document.shape[0], j]
                    apart = bool(mine != its) or bool(its == PADDING)
                out[row, i, j] = not (after or far or apart)
    return out


def expect_flags_true_to_visibility(where):
    visible = where.visible
    queries, keys = where.shape
    if where.sees_all:
        assert bool(visible.all())
    if where.plain_causal:
        assert queries == keys
        assert torch.equal(visible[0], torch.ones(queries, keys, dtype=torch.bool).tril())
    if where.ordered:
        memory = torch.arange(where.start, where.start + queries)[:, None] - torch.arange(keys)
        distances = where.offset[..., 0].expand(visible.shape)
        assert torch.equal(distances[visible], memory.expand(visible.shape)[visible])


@st.composite
def geometries(draw):
    """What builds a geometry when called."""
    kind = draw(st.sampled_from(["causal", "full", "cross", "packed", "left", "right", "given", "raw"]))
    n = draw(st.integers(0, 9))
    window = draw(st.none() | st.integers(1, 11))
    causal = draw(st.booleans())
    if kind == "causal":
        return partial(Geometry.causal, n, cached=draw(st.integers(0, 5)), window=window)
    if kind == "full":
        return partial(Geometry.full, n, window=window)
    if kind == "cross":
        keys = draw(st.integers(0, 6))
        real = draw(st.none() | st.lists(st.integers(0, keys), min_size=1, max_size=3))
        mask = None if real is None else torch.arange(keys)[None] < torch.tensor(real)[:, None]
        return partial(Geometry.cross, n, keys, real=mask)
    if kind == "packed":
        lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
        return partial(Geometry.packed, lengths, causal=causal, window=window)
    if kind in ("left", "right"):
        lengths = torch.tensor(draw(st.lists(st.integers(0, n), min_size=1, max_size=3)))[:, None]
        place = torch.arange(n)[None]
        real = place >= n - lengths if kind == "left" else place < lengths
        return partial(Geometry.padded, real, causal=causal, window=window)
    if kind == "given":
        pos = torch.tensor(draw(st.lists(st.integers(-5, 50), min_size=n, max_size=n)), dtype=torch.long)
        return partial(Geometry.given, pos[None, :, None], causal=causal, window=window)
    keys, rows = draw(st.integers(0, 8)), draw(st.integers(1, 2))
    ids = st.lists(st.integers(-1, 2), min_size=rows * (n + keys), max_size=rows * (n + keys))
    document = torch.tensor(draw(ids), dtype=torch.long).reshape(rows, n + keys)
    return partial(
        Geometry,
        torch.arange(n)[None, :, None],
        torch.arange(keys)[None, :, None].expand(rows, keys, 1),
        causal,
        draw(st.integers(-2, 9)),
        window,
        document[:, :n],
        document[:, n:],
    )


@settings(max_examples=200)
@given(geometries())
def test_visibility_is_what_the_words_say(build):
    where = build()
    assert torch.equal(where.visible.expand(where.rows, *where.shape), seen_by_words(where))


@settings(max_examples=200)
@given(geometries())
def test_the_flags_are_never_wrong(build):
    expect_flags_true_to_visibility(build())


@settings(max_examples=200)
@given(geometries(), st.data())
def test_a_block_is_a_slice_of_the_whole(build, data):
    where = build()
    q, k = (slice(*sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in where.shape)
    block = where.block(q, k)
    assert torch.equal(block.visible, where.visible[:, q, k])
    assert torch.equal(block.offset, where.offset[:, q, k])
    expect_flags_true_to_visibility(block)


def test_a_block_of_queries_alone_keeps_all_keys():
    assert Geometry.causal(7).block(slice(2, 5)).shape == (3, 7)
    assert Geometry.causal(7).block(slice(-2, None), slice(-3, None)).shape == (2, 3)


def test_the_plain_constructors_tell_their_flags():
    assert Geometry.causal(5).plain_causal
    assert not Geometry.causal(5).sees_all
    assert Geometry.causal(1, cached=4).sees_all
    assert not Geometry.causal(2, cached=4).sees_all
    assert not Geometry.causal(2, cached=4).plain_causal
    assert not Geometry.causal(5, window=9).plain_causal
    assert Geometry.full(5).sees_all
    assert not Geometry.full(5, window=2).sees_all
    assert Geometry.cross(3, 5).sees_all
    assert Geometry.cross(3, 5).ordered
    assert not Geometry.packed([2, 3]).plain_causal
    assert not Geometry.given(torch.arange(5)[None, :, None]).ordered
    assert not Geometry.grid(2, 3).ordered


def test_offset_is_positive_for_the_past():
    assert Geometry.causal(1, cached=3).offset[0, 0, :, 0].tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("window", [1, 2, 6, 7, 9])
def test_a_window_of_w_shows_w_keys_with_oneself(window):
    seen = Geometry.causal(7, window=window).visible[0].sum(-1)
    assert seen.tolist() == [min(i + 1, window) for i in range(7)]


def test_a_window_without_causality_reaches_to_both_sides():
    assert Geometry.full(7, window=2).visible[0].sum(-1).tolist() == [2, 3, 3, 3, 3, 3, 2]


def test_packed_documents_count_from_zero_and_see_themselves():
    where = Geometry.packed([2, 3])
    assert where.q_pos[0, :, 0].tolist() == [0, 1, 0, 1, 2]
    expected = torch.block_diag(torch.ones(2, 2).tril(), torch.ones(3, 3).tril()).bool()
    assert torch.equal(where.visible[0], expected)


def test_padding_counts_real_tokens_and_is_seen_by_none():
    where = Geometry.padded(torch.tensor([[False, True, True], [True, True, False]]))
    assert where.q_pos[..., 0].tolist()[0] == [0, 0, 1]
    assert where.q_pos[1, :2, 0].tolist() == [0, 1]
    assert not bool(where.visible[0, :, 0].any() or where.visible[0, 0].any())
    assert not bool(where.visible[1, :, 2].any() or where.visible[1, 2].any())


def test_cross_hides_padded_keys():
    where = Geometry.cross(2, 3, real=torch.tensor([[True, True, False], [True, False, False]]))
    assert where.visible.sum((1, 2)).tolist() == [4, 2]


def test_a_grid_has_rows_and_columns():
    where = Geometry.grid(2, 3)
    assert where.q_pos[0].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert where.offset.shape == (1, 6, 6, 2)
    assert where.sees_all


def test_given_positions_may_be_fractional_and_leave_causality_to_memory():
    where = Geometry.given(torch.tensor([3.5, 0.25, -1.0])[None, :, None])
    assert torch.equal(where.visible[0], torch.ones(3, 3).tril().bool())
    assert where.offset[0, 0, 1, 0].item() == 3.25


PASTS = {
    "plain": ([[1, 1, 1, 1]], [[1, 1, 1]]),
    "left": ([[0, 0, 1, 1], [1, 1, 1, 1]], [[1, 1, 1], [1, 1, 1]]),
}


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("past", PASTS)
def test_tokens_that_follow_see_what_one_piece_would_show(past, window):
    first, then = (torch.tensor(part).bool() for part in PASTS[past])
    whole = Geometry.padded(torch.cat([first, then], 1), window=window)
    read = Geometry.padded(first, window=window)
    new = read.following(3).after(read)
    rest = whole.block(slice(4, 7))
    assert torch.equal(new.visible, rest.visible)
    assert torch.equal(new.offset.expand_as(rest.offset)[rest.visible], rest.offset[rest.visible])
    expect_flags_true_to_visibility(new)


def test_after_right_padding_the_positions_go_on_from_the_last_real_token():
    read = Geometry.padded(torch.tensor([[True, True, False], [True, True, True]]))
    new = read.following(2).after(read)
    assert new.q_pos[..., 0].tolist() == [[2, 3], [3, 4]]
    assert new.visible.int().tolist() == [[[1, 1, 0, 1, 0], [1, 1, 0, 1, 1]], [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]]
    expect_flags_true_to_visibility(new)
    twice = new.following(1).after(new)
    assert twice.q_pos[..., 0].tolist() == [[4], [5]]
    assert twice.visible.int().tolist() == [[[1, 1, 0, 1, 1, 1]], [[1, 1, 1, 1, 1, 1]]]


def test_after_packed_documents_the_last_one_goes_on():
    read = Geometry.packed([2, 3])
    new = read.following(2).after(read)
    whole = Geometry.packed([2, 5]).block(slice(5, 7))
    assert torch.equal(new.visible, whole.visible)
    assert torch.equal(new.q_pos, whole.q_pos)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.none() | st.integers(1, 6))
def test_piece_by_piece_is_the_same_as_one_piece(pieces, window):
    whole = Geometry.causal(sum(pieces), window=window)
    past = Geometry.causal(pieces[0], window=window)
    for piece in pieces[1:]:
        if past.shape[1] == 0:
            past = Geometry.causal(piece, window=window)
            continue
        begin = past.shape[1]
        past = past.following(piece).after(past)
        rest = whole.block(slice(begin, begin + piece), slice(0, begin + piece))
        assert torch.equal(past.visible, rest.visible)
        assert torch.equal(past.offset, rest.offset)
        expect_flags_true_to_visibility(past)


def test_tokens_that_follow_stay_in_order():
    read = Geometry.causal(3)
    for piece in (1, 2, 1):
        read = read.following(piece).after(read)
        assert read.ordered
        expect_flags_true_to_visibility(read)


def test_order_is_not_claimed_of_tokens_that_stand_elsewhere():
    read = Geometry.causal(3)
    new = read.following(2)
    far = new.q_pos + 5
    for other in (
        Geometry.causal(2),
        new.block(slice(1, 2), slice(1, 2)),
        replace(new, q_pos=far, k_pos=far),
        read.following(1).after(read),
        Geometry.causal(5).following(2),
    ):
        assert not other.after(read).ordered
    assert not new.after(Geometry.causal(3)).ordered
    grid = Geometry.grid(2, 3)
    assert not grid.following(1).after(grid).ordered
    # the last query of a block need not be its last key
    block = read.block(slice(0, 2))
    assert not block.following(1).after(block).ordered
    padded = Geometry.padded(torch.tensor([[True, True, False]]))
    assert not padded.following(1).after(padded).ordered


def test_following_needs_something_before():
    with pytest.raises(ValueError, match=r"something must have been read before; got no keys"):
        Geometry.causal(0).following(2)


def test_a_geometry_tells_rows_apart_only_where_it_must():
    assert Geometry.causal(3).rows == 1
    assert Geometry.padded(torch.ones(4, 3).bool()).rows == 4


POS = torch.arange(3)[None, :, None]


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: Geometry(POS[0], POS), r"positions need the axes \(batch, tokens, axes\); got shapes \(3, 1\)"),
        (lambda: Geometry(POS, POS.expand(1, 3, 2)), "the same position axes; got .*; give both the same last axis"),
        (lambda: Geometry.causal(3, window=0), "a window holds at least the token itself; got 0; give 1 or more"),
        (lambda: Geometry.full(3, window=-2), "a window holds at least the token itself; got -2"),
        (lambda: Geometry(POS, POS, q_document=POS[..., 0]), "documents are given for queries and keys alike"),
        (
            lambda: Geometry(POS, POS, q_document=POS[..., 0], k_document=POS[:, :2, 0]),
            "every token belongs to a document; got 2 documents for 3 positions",
        ),
        (lambda: Geometry.packed([]), r"each packed document needs a token; got lengths \[\]"),
        (lambda: Geometry.packed([2, 0]), r"each packed document needs a token; got lengths \[2, 0\]"),
        (lambda: Geometry.padded(torch.tensor([[True, False, True]])), "got a gap between them; close the gap"),
    ],
)
def test_what_makes_no_geometry_is_refused(build, match, untyped):
    with pytest.raises(ValueError, match=match):
        build()
