"""Attention in chunks as document ids: which keys a query attends to, from the definition."""

import pytest
import torch

from ordinate import Geometry
from ordinate.core.attention_chunks import in_chunks
from ordinate.core.geometry import PADDING
from ordinate.core.records import changed
from ordinate.core.sequence_shard import SequenceShard
from ordinate.models.fixed_cache import FixedGeometry

REAL = torch.arange(11) >= torch.tensor([[0], [4]])
PLACES = {
    "causal": lambda: Geometry.causal(11),
    "cached": lambda: Geometry.causal(3, cached=6),
    "one token": lambda: Geometry.causal(1, cached=9),
    "two sides": lambda: Geometry.full(11),
    "wide window": lambda: Geometry.causal(11, window=9),
    "narrow window": lambda: Geometry.full(11, window=2),
    "packed": lambda: Geometry.packed([4, 1, 6]),
    "packed, two sides": lambda: Geometry.packed([4, 1, 6], causal=False),
    "left": lambda: Geometry.padded(REAL),
    "right": lambda: Geometry.padded(REAL.flip(1)),
    "next of left": lambda: Geometry.padded(REAL).next_tokens(3).with_past(Geometry.padded(REAL)),
    "next of packed": lambda: Geometry.packed([4, 7]).next_tokens(2).with_past(Geometry.packed([4, 7])),
    "a row each": lambda: Geometry.from_positions(
        torch.tensor([[[0], [5], [1], [6], [2]], [[9], [9], [0], [3], [4]]])
    ),
    "fractions": lambda: Geometry.from_positions(torch.linspace(-3, 6, 9)[None, :, None]),
    "cross": lambda: Geometry.cross(5, 9),
    "block": lambda: Geometry.causal(11).block(slice(3, 9), slice(1, 10)),
    "empty": lambda: Geometry.causal(0),
}


def expected(where, size):
    """Pairs that see each other, one after the other."""
    rows = []
    for row in range(max(where.batch_size, 1)):
        q, k = (pos[min(row, len(pos) - 1), :, 0].tolist() for pos in (where.q_pos, where.k_pos))
        seen = where.visible[min(row, len(where.visible) - 1)].tolist()
        rows.append([[seen[i][j] and q[i] // size == k[j] // size for j in range(len(k))] for i in range(len(q))])
    return torch.tensor(rows, dtype=torch.bool).view(len(rows), *where.shape)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 20])
@pytest.mark.parametrize("name", PLACES)
def test_a_query_sees_the_keys_of_its_chunk(name, size):
    where = PLACES[name]()
    wanted = expected(where, size)
    found = in_chunks(where, size).visible
    assert torch.equal(found.expand(wanted.shape), wanted)


@pytest.mark.parametrize("name", PLACES)
def test_blocks_have_the_same_chunks(name):
    where = PLACES[name]()
    made = in_chunks(where, 3)
    rows = slice(1, where.shape[0])
    assert torch.equal(made.block(rows).visible, made.visible[:, rows])


def test_what_hides_nothing_changes_nothing():
    for where in (Geometry.causal(4), Geometry.causal(2, cached=2), Geometry.packed([4, 3]), Geometry.full(4)):
        assert in_chunks(where, 4) is where
        assert in_chunks(where, 3) is not where
    # padding before the first token has the position 0
    where = Geometry.padded(torch.arange(7) >= torch.tensor([[3], [4]]))
    assert in_chunks(where, 4) is where


def test_where_positions_follow_each_other_there_is_a_window_too():
    assert in_chunks(Geometry.causal(9), 4).window == 4
    assert in_chunks(Geometry.causal(9, window=3), 4).window == 3
    assert in_chunks(PLACES["a row each"](), 4).window is None
    later = in_chunks(PLACES["next of packed"](), 4)
    assert later.window is None
    assert not in_chunks(Geometry.padded(REAL), 4).one_document
    assert in_chunks(Geometry.packed([4, 5]), 3).packed_sizes is None


def test_padding_stays_padding_and_ids_stay_whole_numbers():
    made = in_chunks(Geometry.padded(REAL), 2)
    assert torch.equal(made.k_document == PADDING, ~REAL)
    many = changed(
        Geometry.packed([4, 4]), q_document=torch.full((1, 8), 2**31 - 1), k_document=torch.zeros(1, 8).long()
    )
    made = in_chunks(many, 2)
    assert not made.visible.any()
    assert int(made.q_document.min()) > 0


def test_a_fixed_cache_has_chunks_and_no_window():
    pos, document = torch.arange(9)[None, :, None], torch.where(torch.arange(9) < 7, 0, PADDING)[None]
    where = FixedGeometry(pos[:, 6:7], pos, True, 8, None, document[:, :1], document)
    assert in_chunks(where, 4).visible[0, 0].tolist() == [False] * 4 + [True] * 3 + [False] * 2


def test_a_shard_has_the_chunks_of_the_whole():
    whole = Geometry.causal(8)
    made = in_chunks(SequenceShard.of(whole, 0, 2), 3)
    assert isinstance(made, SequenceShard)
    assert torch.equal(made.sequence.visible, in_chunks(whole, 3).visible)


@pytest.mark.parametrize(
    ("where", "size", "kind", "match"),
    [
        (Geometry.causal(3), 0, ValueError, "chunk must be above zero; got 0"),
        (Geometry.causal(3), 2.0, TypeError, "chunk must be a whole number; got 2.0"),
        (Geometry.grid(2, 2), 2, ValueError, "attention in chunks needs positions of one axis; got 2 axes; leave"),
    ],
)
def test_what_has_no_chunks_is_refused(where, size, kind, match):
    with pytest.raises(kind, match=match):
        in_chunks(where, size)
