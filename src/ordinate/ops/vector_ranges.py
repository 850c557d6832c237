"""Pairs of queries and keys by offset: whose offsets have vectors of their own, and which share vectors."""

import math
from typing import NamedTuple

from ordinate.core.geometry import Geometry
from ordinate.ops.blocks import QueryBlock, query_blocks

# fewest keys of a block that is one of several parts of a row: with fewer, the C++ kernel sums a row's gradients over
# these keys alone
MIN_KEYS = 129
# pairs beyond the reach are computed apart if blocks of the others have at most this share of all pairs
MAX_SHARE = 0.8


class OffsetRange(NamedTuple):
    """Entries of a full table of offsets; entry x is of keys x - queries + 1 tokens after the query, in memory order.

    Args:
        begin: first entry.
        stop: end of the entries.
        shared: an entry whose vectors all of them have; None: each has its own.
    """

    begin: int
    stop: int
    shared: int | None = None

    def keys(self, rows: slice, where: Geometry) -> slice:
        """Return the range of keys that some of these queries meet at these offsets; it may be empty."""
        queries, keys = where.shape
        start = min(max(self.begin - (queries - 1) + rows.start, 0), keys)
        return slice(start, max(min(self.stop - (queries - 1) + rows.stop - 1, keys), start))

    def in_block(self, cut: QueryBlock) -> "BlockOffsets":
        """Return those that the pairs of a block have."""
        count, keys = sum(cut.size) - 1, cut.size[1]
        begin = min(max(self.begin - cut.first, 0), count)
        stop = min(max(self.stop - cut.first, begin), count)
        width = min(max(stop, keys + 1), count)
        # all numbers up to the width are products, if the first is: nothing is copied then
        return BlockOffsets(begin, stop if begin else width, width)


class BlockOffsets(NamedTuple):
    """Offsets of a block of n queries and m keys, counted from that of the last query and the first key.

    Args:
        begin: first that is needed.
        stop: end of those that are needed.
        width: numbers in a row of products with vectors, at least m + 1 or n + m - 1: the rows of the skewed view do
            not overlap then. Pairs that read numbers of other rows are hidden.
    """

    begin: int
    stop: int
    width: int


class OffsetSplit(NamedTuple):
    """The visible pairs, split at the reach.

    Args:
        near: offsets with vectors of their own.
        blocks: blocks of queries, with their keys at these offsets; the largest first.
        far: ranges of offsets that share their vectors, at most one on each side.
    """

    near: OffsetRange
    blocks: list[QueryBlock]
    far: list[OffsetRange]


def split_at_reach(where: Geometry, reach: float, rows: int) -> OffsetSplit:
    """Split the visible pairs of a geometry, or leave all in blocks of queries where that is not worth it.

    Args:
        where: the geometry, with consecutive positions.
        reach: all offsets from this one on, in either direction, share their vectors [tokens].
        rows: queries of a block.
    """
    visible, whole = _visible(where), query_blocks(where, rows)
    own, size = where.start + where.shape[0] - 1, max(1.0, reach)
    # entries [low, high) are nearer than the reach
    low, high = (
        (visible.begin, visible.stop) if math.isinf(size) else (own - math.ceil(size) + 1, own + math.ceil(size))
    )
    near = OffsetRange(max(low, visible.begin), min(high, visible.stop))
    far = [
        *([OffsetRange(visible.begin, min(low, visible.stop), low - 1)] if visible.begin < low else []),
        *([OffsetRange(max(high, visible.begin), visible.stop, high)] if high < visible.stop else []),
    ]
    blocks = _even_blocks(near, where, rows)
    worthwhile = far and sum(_pairs(cut) for cut in blocks) <= MAX_SHARE * sum(_pairs(cut) for cut in whole)
    if not worthwhile or any(cut.size[1] < MIN_KEYS for cut in blocks) or not _within(blocks, whole):
        near, blocks, far = visible, whole, []
    # memory of a block that is freed is large enough for the next
    return OffsetSplit(near, sorted(blocks, key=_pairs, reverse=True), far)


def _visible(where: Geometry) -> OffsetRange:
    """Return the offsets that causal mask and window allow."""
    own, begin, stop = where.start + where.shape[0] - 1, 0, sum(where.shape) - 1
    if where.is_causal:
        stop = min(stop, own + 1)
    if where.window is not None:
        begin, stop = max(begin, own - where.window + 1), min(stop, own + where.window)
    return OffsetRange(min(begin, stop), max(begin, stop))


def _even_blocks(near: OffsetRange, where: Geometry, rows: int) -> list[QueryBlock]:
    """Cut the queries into blocks of nearly the same size, with their keys at these offsets: none has few rows."""
    queries, _ = where.shape
    size = -(-queries // -(-queries // rows))
    cuts = [slice(start, min(start + size, queries)) for start in range(0, queries, size)]
    keys = [near.keys(cut, where) for cut in cuts]
    return [QueryBlock(cut, held, queries - cut.stop + held.start) for cut, held in zip(cuts, keys, strict=True)]


def _pairs(cut: QueryBlock) -> int:
    return math.prod(cut.size)


def _within(blocks: list[QueryBlock], others: list[QueryBlock]) -> bool:
    """Whether blocks read no other entries of a table of offsets than some others."""
    first, stop = (
        (min(cut.first for cut in found), max(cut.first + sum(cut.size) for cut in found))
        for found in (blocks, others)
    )
    return stop[0] <= first[0] and first[1] <= stop[1]
