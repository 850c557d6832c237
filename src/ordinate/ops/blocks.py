"""Blocks of queries with the range of keys that they can attend to, and the blocks of sliding-window attention."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.records import changed

# blocks of sliding-window attention have a multiple of so many rows: smaller ones cost more steps than they save
WINDOW_ROWS = 64


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """A block of consecutive queries, and the range of keys that at least one of them may attend to.

    Args:
        rows: range of queries.
        keys: range of keys.
        first: index of the first entry that this block reads in a table of offsets: the number of queries after the
            last row of the block, plus the index of the first key.
    """

    rows: slice
    keys: slice
    first: int

    @property
    def size(self) -> tuple[int, int]:
        """Number of queries and of keys."""
        return self.rows.stop - self.rows.start, self.keys.stop - self.keys.start

    @property
    def reverse(self) -> slice:
        """Range of these rows when all queries are in reverse order."""
        start = self.first - self.keys.start
        return slice(start, start + self.rows.stop - self.rows.start)

    def within(self, first: int, stop: int) -> "QueryBlock":
        """Drop the keys outside of this range, but keep at least one key."""
        low = min(max(first, self.keys.start), self.keys.stop - 1)
        return QueryBlock(
            self.rows, slice(low, max(min(stop, self.keys.stop), low + 1)), self.first + low - self.keys.start
        )


def visible_keys(where: Geometry, begin: int, end: int) -> slice:
    """Return the range of keys that the causal mask and the window allow to the queries [begin, end); never empty."""
    low, high = 0, where.shape[1]
    if where.window is not None:
        low, high = (
            max(0, where.start + begin - where.window + 1),
            min(high, where.start + end + where.window - 1),
        )
    if where.is_causal:
        high = min(high, where.start + end)
    # fully masked queries keep one key, whose weight becomes 0: no product has an empty dimension
    low = min(low, where.shape[1] - 1)
    return slice(low, max(high, low + 1))


def query_blocks(where: Geometry, size: int) -> list[QueryBlock]:
    """Cut the queries into blocks of `size` rows, each with the keys that causal mask and window allow."""
    queries, _ = where.shape
    found = []
    for begin in range(0, queries, size):
        end = min(begin + size, queries)
        keys = visible_keys(where, begin, end)
        found.append(QueryBlock(slice(begin, end), keys, queries - end + keys.start))
    return found


def largest_blocks(blocks: list[QueryBlock]) -> list[QueryBlock]:
    """Return the blocks that can hold most: that with the most pairs, and that with the most keys of the tallest.

    The last has fewer rows than the others, and may have more pairs: what grows with the rows alone is theirs.
    """
    most_pairs, tallest = max(blocks, key=lambda cut: math.prod(cut.size)), max(blocks, key=lambda cut: cut.size)
    return [most_pairs] if most_pairs is tallest else [most_pairs, tallest]


def visible_offsets(where: Geometry, reach: float | None) -> tuple[int, int, bool]:
    """Return the entries [first, stop) of a full table that visible pairs need, and whether some pairs lie beyond.

    Pairs beyond these entries have what the first or the last has; there is at least one entry.

    Args:
        where: the geometry, with consecutive positions.
        reach: all offsets from this one on, in either direction, have the same [tokens]; None: not known.
    """
    total, own = sum(where.shape) - 1, where.start + where.shape[0] - 1
    low, high = 0, total
    if where.is_causal:
        high = min(high, own + 1)
    if where.window is not None:
        low, high = max(low, own - where.window + 1), min(high, own + where.window)
    # where a window leaves no key, one entry remains
    low = min(low, total - 1)
    high = max(high, low + 1)
    first, stop = low, high
    if reach is not None and math.isfinite(reach):
        size = max(math.ceil(reach), 1)
        if low < own - size < high - 1:
            first = own - size
        if first < own + size + 1 < high:
            stop = own + size + 1
    return first, stop, (first, stop) != (low, high)


def offset_geometry(where: Geometry, first: int, stop: int) -> Geometry:
    """Geometry of one query and one key per offset: entry x of a table of offsets is key minus query x - queries + 1.

    A bias evaluated here gives the whole table of an ordered geometry with queries + keys - 1 entries.
    """
    device, last = where.q_pos.device, where.start + where.shape[0] - 1
    pos = torch.arange(first, max(first, stop), device=device)[None, :, None]
    query = pos.new_full((1, 1, 1), last)
    return changed(where, q_pos=query, k_pos=pos, start=0, window=None, q_document=None, k_document=None)


def window_block_rows(reach: int) -> int:
    """Return the rows per block of a sliding window that reaches so many tokens to one side, about two blocks."""
    return WINDOW_ROWS * max(1, -(-reach // (2 * WINDOW_ROWS)))


def round_up_to_blocks(reach: int, rows: int) -> int:
    """Round a window's reach up to whole blocks: products with round numbers of keys are faster."""
    return rows * -(-reach // rows)


def overlapping_pieces(
    x: Shaped[Tensor, "b *rest n"], length: int, step: int
) -> Shaped[Tensor, "b pieces *rest length"]:
    """View all overlapping pieces of this length, each one step after the other."""
    return x.unfold(-1, length, step).movedim(-2, 1)
