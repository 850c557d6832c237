import pytest
import torch

from ordinate import Geometry
from ordinate.ops import vector_ranges
from ordinate.ops.vector_ranges import split_at_reach

GEOMETRIES = {
    "causal": Geometry.causal(400),
    "full": Geometry.full(391),
    "window": Geometry.causal(400, window=70),
    "two sides": Geometry.full(400, window=150),
    "cached": Geometry.causal(300, cached=77),
    "cross": Geometry.cross(300, 351),
    "short": Geometry.causal(63),
}


def parts(where, split):
    """Number of times that each pair is computed, at each distance."""
    queries, keys = where.shape
    entry = torch.arange(keys) - torch.arange(queries)[:, None] + queries - 1
    counts = torch.zeros(queries, keys, dtype=torch.int64)
    for offsets in split.far:
        counts += (entry >= offsets.begin) & (entry < offsets.stop)
    for cut in split.blocks:
        own = entry[cut.rows, cut.keys]
        counts[cut.rows, cut.keys] += (own >= split.near.begin) & (own < split.near.stop)
    return entry, counts


@pytest.mark.parametrize("reach", [0.0, 1.0, 6.5, 40.0, 1000.0, float("inf")])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_each_visible_pair_is_computed_once_and_hidden_ones_never(name, reach, monkeypatch):
    monkeypatch.setattr(vector_ranges, "MAX_SHARE", 100.0)
    where = GEOMETRIES[name]
    split = split_at_reach(where, reach, 160)
    entry, counts = parts(where, split)
    assert torch.equal(counts, where.visible[0].long())
    distance = (entry - (where.start + where.shape[0] - 1)).abs()
    for offsets in split.far:
        shared = (entry >= offsets.begin) & (entry < offsets.stop)
        assert not shared.any() or distance[shared].min() >= reach
        assert offsets.begin <= offsets.shared < offsets.stop
    assert bool(split.far) == (name != "short" and reach < 70)


def test_blocks_read_the_offsets_of_all_their_pairs():
    where = GEOMETRIES["causal"]
    split = split_at_reach(where, 6.0, 160)
    assert split.far
    for cut in split.blocks:
        reads, (rows, keys) = split.near.in_block(cut), cut.size
        column = torch.arange(keys) - torch.arange(rows)[:, None] + rows - 1
        needed = column[where.block(cut.rows, cut.keys).visible[0] & (column + cut.first >= split.near.begin)]
        assert reads.begin <= needed.min()
        assert needed.max() < reads.stop <= reads.width
        # rows of the view do not overlap
        assert reads.width - 1 >= keys


def test_texts_that_are_short_beside_the_reach_are_not_split():
    assert not split_at_reach(Geometry.causal(700), 600.0, 256).far
    assert split_at_reach(Geometry.causal(1400), 16.0, 256).far
