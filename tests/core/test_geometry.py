import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from ordinate.core.geometry import PADDING, Geometry
from ordinate.schemes import T5, Alibi


def seen_by_words(where):
    """Compute the mask by the definition in the docstring, one pair at a time."""
    queries, keys = where.shape
    rows = where.batch_size
    out = torch.zeros(rows, queries, keys, dtype=torch.bool)
    for row in range(rows):
        for i in range(queries):
            for j in range(keys):
                place = where.start + i
                after = where.is_causal and j > place
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
    if where.is_unmasked:
        assert bool(visible.all())
    if where.is_plain_causal:
        assert queries == keys
        assert torch.equal(visible[0], torch.ones(queries, keys, dtype=torch.bool).tril())
    if where.consecutive:
        memory = torch.arange(where.start, where.start + queries)[:, None] - torch.arange(keys)
        distances = where.offset[..., 0].expand(visible.shape)
        assert torch.equal(distances[visible], memory.expand(visible.shape)[visible])


@st.composite
def geometries(draw):
    """Draw a function that builds a geometry."""
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
        return partial(Geometry.from_positions, pos[None, :, None], causal=causal, window=window)
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
def test_visibility_follows_its_definition(build):
    where = build()
    assert torch.equal(where.visible.expand(where.batch_size, *where.shape), seen_by_words(where))


@settings(max_examples=200)
@given(geometries())
def test_the_mask_flags_agree_with_the_mask(build):
    expect_flags_true_to_visibility(build())


@pytest.mark.extended
@settings(max_examples=200)
@given(geometries(), st.data())
def test_a_block_is_a_slice_of_the_geometry(build, data):
    where = build()
    q, k = (slice(*sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in where.shape)
    block = where.block(q, k)
    assert torch.equal(block.visible, where.visible[:, q, k])
    assert torch.equal(block.offset, where.offset[:, q, k])
    expect_flags_true_to_visibility(block)


def test_a_block_of_queries_alone_keeps_all_keys():
    assert Geometry.causal(7).block(slice(2, 5)).shape == (3, 7)
    assert Geometry.causal(7).block(slice(-2, None), slice(-3, None)).shape == (2, 3)


def test_the_plain_constructors_set_their_flags():
    assert Geometry.causal(5).is_plain_causal
    assert not Geometry.causal(5).is_unmasked
    assert Geometry.causal(1, cached=4).is_unmasked
    assert not Geometry.causal(2, cached=4).is_unmasked
    assert not Geometry.causal(2, cached=4).is_plain_causal
    assert not Geometry.causal(5, window=9).is_plain_causal
    assert Geometry.full(5).is_unmasked
    assert not Geometry.full(5, window=2).is_unmasked
    assert Geometry.cross(3, 5).is_unmasked
    assert Geometry.cross(3, 5).consecutive
    assert not Geometry.packed([2, 3]).is_plain_causal
    assert not Geometry.from_positions(torch.arange(5)[None, :, None]).consecutive
    assert not Geometry.grid(2, 3).consecutive


def test_offset_is_positive_for_the_past():
    assert Geometry.causal(1, cached=3).offset[0, 0, :, 0].tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("window", [1, 2, 6, 7, 9])
def test_a_window_of_w_shows_w_keys_including_the_token_itself(window):
    seen = Geometry.causal(7, window=window).visible[0].sum(-1)
    assert seen.tolist() == [min(i + 1, window) for i in range(7)]


def test_a_window_without_causality_extends_to_both_sides():
    assert Geometry.full(7, window=2).visible[0].sum(-1).tolist() == [2, 3, 3, 3, 3, 3, 2]


def test_packed_documents_have_positions_from_zero_and_see_only_themselves():
    where = Geometry.packed([2, 3])
    assert where.q_pos[0, :, 0].tolist() == [0, 1, 0, 1, 2]
    expected = torch.block_diag(torch.ones(2, 2).tril(), torch.ones(3, 3).tril()).bool()
    assert torch.equal(where.visible[0], expected)


def test_packed_documents_need_no_values():
    with FakeTensorMode():
        assert Geometry.packed([2, 3]).q_document.shape == (1, 5)


COMPILED = """
import torch
from ordinate import Geometry
packed = torch.compile(lambda x: x + Geometry.packed([2, 3]).q_document[0], fullgraph=True, backend="eager")
assert packed(torch.zeros(5)).tolist() == [0, 0, 1, 1, 1]
"""


@pytest.mark.extended
def test_packed_documents_need_no_graph_break():
    # in a process of its own, without the checks of types that tests have
    subprocess.run([sys.executable, "-c", COMPILED], check=True)


def test_padding_is_not_counted_and_is_hidden():
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
    assert where.is_unmasked


def test_explicit_positions_may_be_fractional_and_causality_follows_memory_order():
    where = Geometry.from_positions(torch.tensor([3.5, 0.25, -1.0])[None, :, None])
    assert torch.equal(where.visible[0], torch.ones(3, 3).tril().bool())
    assert where.offset[0, 0, 1, 0].item() == 3.25


PASTS = {
    "plain": ([[1, 1, 1, 1]], [[1, 1, 1]]),
    "left": ([[0, 0, 1, 1], [1, 1, 1, 1]], [[1, 1, 1], [1, 1, 1]]),
}


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("past", PASTS)
def test_a_continuation_sees_the_same_as_one_pass(past, window):
    first, then = (torch.tensor(part).bool() for part in PASTS[past])
    whole = Geometry.padded(torch.cat([first, then], 1), window=window)
    read = Geometry.padded(first, window=window)
    new = read.next_tokens(3).with_past(read)
    rest = whole.block(slice(4, 7))
    assert torch.equal(new.visible, rest.visible)
    assert torch.equal(new.offset.expand_as(rest.offset)[rest.visible], rest.offset[rest.visible])
    expect_flags_true_to_visibility(new)


def test_after_right_padding_positions_continue_from_the_last_token():
    read = Geometry.padded(torch.tensor([[True, True, False], [True, True, True]]))
    new = read.next_tokens(2).with_past(read)
    assert new.q_pos[..., 0].tolist() == [[2, 3], [3, 4]]
    assert new.visible.int().tolist() == [[[1, 1, 0, 1, 0], [1, 1, 0, 1, 1]], [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]]
    expect_flags_true_to_visibility(new)
    twice = new.next_tokens(1).with_past(new)
    assert twice.q_pos[..., 0].tolist() == [[4], [5]]
    assert twice.visible.int().tolist() == [[[1, 1, 0, 1, 1, 1]], [[1, 1, 1, 1, 1, 1]]]


def test_after_packed_documents_the_last_one_continues():
    read = Geometry.packed([2, 3])
    new = read.next_tokens(2).with_past(read)
    whole = Geometry.packed([2, 5]).block(slice(5, 7))
    assert torch.equal(new.visible, whole.visible)
    assert torch.equal(new.q_pos, whole.q_pos)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.none() | st.integers(1, 6))
def test_chunked_geometries_equal_one_pass(pieces, window):
    whole = Geometry.causal(sum(pieces), window=window)
    past = Geometry.causal(pieces[0], window=window)
    for piece in pieces[1:]:
        if past.shape[1] == 0:
            past = Geometry.causal(piece, window=window)
            continue
        begin = past.shape[1]
        past = past.next_tokens(piece).with_past(past)
        rest = whole.block(slice(begin, begin + piece), slice(0, begin + piece))
        assert torch.equal(past.visible, rest.visible)
        assert torch.equal(past.offset, rest.offset)
        expect_flags_true_to_visibility(past)


def test_a_direct_continuation_stays_ordered():
    read = Geometry.causal(3)
    for piece in (1, 2, 1):
        read = read.next_tokens(piece).with_past(read)
        assert read.consecutive
        expect_flags_true_to_visibility(read)


def test_other_continuations_are_not_ordered():
    read = Geometry.causal(3)
    new = read.next_tokens(2)
    far = new.q_pos + 5
    for other in (
        Geometry.causal(2),
        new.block(slice(1, 2), slice(1, 2)),
        replace(new, q_pos=far, k_pos=far),
        read.next_tokens(1).with_past(read),
        Geometry.causal(5).next_tokens(2),
    ):
        assert not other.with_past(read).consecutive
    assert not new.with_past(Geometry.causal(3)).consecutive
    grid = Geometry.grid(2, 3)
    assert not grid.next_tokens(1).with_past(grid).consecutive
    # the last query of a block need not be its last key
    block = read.block(slice(0, 2))
    assert not block.next_tokens(1).with_past(block).consecutive
    padded = Geometry.padded(torch.tensor([[True, True, False]]))
    assert not padded.next_tokens(1).with_past(padded).consecutive


def test_a_continuation_needs_a_key():
    with pytest.raises(ValueError, match=r"a continuation needs at least one key; got none"):
        Geometry.causal(0).next_tokens(2)


def test_a_geometry_has_a_batch_size_only_where_it_must():
    assert Geometry.causal(3).batch_size == 1
    assert Geometry.padded(torch.ones(4, 3).bool()).batch_size == 4


POS = torch.arange(3)[None, :, None]


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: Geometry(POS[0], POS), r"positions need the axes \(batch, tokens, axes\); got shapes \(3, 1\)"),
        (
            lambda: Geometry(POS, POS.expand(1, 3, 2)),
            "the same number of position axes; got .*; give both the same last axis",
        ),
        (lambda: Geometry.causal(3, window=0), "a window holds at least the token itself; got 0; give 1 or more"),
        (lambda: Geometry.full(3, window=-2), "a window holds at least the token itself; got -2"),
        (lambda: Geometry(POS, POS, q_document=POS[..., 0]), "document ids must be given for queries and keys"),
        (
            lambda: Geometry(POS, POS, q_document=POS[..., 0], k_document=POS[:, :2, 0]),
            "every token needs a document id; got 2 ids for 3 positions",
        ),
        (lambda: Geometry.packed([]), r"each packed document needs a token; got lengths \[\]"),
        (lambda: Geometry.packed([2, 0]), r"each packed document needs a token; got lengths \[2, 0\]"),
        (lambda: Geometry.padded(torch.tensor([[True, False, True]])), "got a gap between them; close the gap"),
    ],
)
def test_invalid_geometries_raise_an_error(build, match, untyped):
    with pytest.raises(ValueError, match=match):
        build()


def test_offsets_of_int32_positions_do_not_overflow():
    ends = torch.tensor([[[-(2**31)], [2**31 - 1]]], dtype=torch.int32)
    where = Geometry.from_positions(ends, causal=False)
    assert where.offset[0, :, :, 0].tolist() == [[0, 1 - 2**32], [2**32 - 1, 0]]
    bias = Alibi(heads=1).at(where).bias
    assert bias[0, 0, 0, 1] == bias[0, 0, 1, 0] == -(2**32) * 2**-8


def test_positions_whose_differences_overflow_are_refused():
    far = torch.tensor([[[-(2**62) - 5], [2**62 + 5]]])
    with pytest.raises(
        ValueError, match=r"positions above -2\^62 and up to 2\^62, .*; got -4611686018427387909 to 46.*; sub"
    ):
        T5(heads=1).at(Geometry.from_positions(far))
    # the difference of both bounds is 2^63, one more than int64 holds
    for low, fits in ((-(2**62), False), (1 - 2**62, True)):
        where = Geometry.from_positions(torch.tensor([[[low], [2**62]]]), causal=False)
        if fits:
            assert (Alibi(heads=1).at(where).bias <= 0).all()
            continue
        with pytest.raises(ValueError, match=r"positions above -2\^62 and up to 2\^62"):
            Alibi(heads=1).at(where)


def test_a_start_is_a_count_and_a_block_is_consecutive(untyped):
    with pytest.raises(TypeError, match=r"start must be a whole number; got 0\.5"):
        Geometry(POS, POS, start=0.5)
    with pytest.raises(ValueError, match=r"the first query must not come before the first key; got start=-2; count"):
        Alibi(heads=1).at(Geometry(POS, POS, start=-2))
    with pytest.raises(ValueError, match="a block has consecutive queries; got step 2; leave it out"):
        Geometry.causal(6).block(slice(0, 6, 2))


def test_a_negative_number_of_next_tokens_is_an_error():
    with pytest.raises(ValueError, match="tokens must not be negative; got -1; give how many there are"):
        Geometry.causal(3).next_tokens(-1)
