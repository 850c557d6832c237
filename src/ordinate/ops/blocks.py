"""Attention cut into blocks of rows."""

from dataclasses import dataclass, replace

import torch

from ordinate.geometry import Geometry


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows, and the keys that any of them may see.

    Args:
        rows: the queries.
        keys: the keys.
        first: how far the last row stands from the last query, plus the first key: where a table of distances begins.
    """

    rows: slice
    keys: slice
    first: int

    @property
    def size(self) -> tuple[int, int]:
        """How many queries and keys."""
        return self.rows.stop - self.rows.start, self.keys.stop - self.keys.start

    @property
    def reverse(self) -> slice:
        """Where its rows stand when all queries are in reverse."""
        start = self.first - self.keys.start
        return slice(start, start + self.rows.stop - self.rows.start)

    def after(self, key: int) -> "Block":
        """The same without the keys before this one; one key is left."""
        low = min(max(key, self.keys.start), self.keys.stop - 1)
        return Block(self.rows, slice(low, self.keys.stop), self.first + low - self.keys.start)


def reachable(where: Geometry, begin: int, end: int) -> slice:
    """The keys that causality and the window leave to these rows, from the first to the last; one at least."""
    low, high = 0, where.shape[1]
    if where.window is not None:
        low, high = (
            max(0, where.start + begin - where.window + 1),
            min(high, where.start + end + where.window - 1),
        )
    if where.hides_future:
        high = min(high, where.start + end)
    # rows that see nothing still have one key, whose weight will be 0
    low = min(low, where.shape[1] - 1)
    return slice(low, max(high, low + 1))


def blocks(where: Geometry, size: int) -> list[Block]:
    """The blocks of so many rows, with the keys that causality and the window leave to them."""
    queries, _ = where.shape
    found = []
    for begin in range(0, queries, size):
        end = min(begin + size, queries)
        keys = reachable(where, begin, end)
        found.append(Block(slice(begin, end), keys, queries - end + keys.start))
    return found


def along(where: Geometry, first: int, stop: int) -> Geometry:
    """One query of an ordered geometry, and a key at each distance: x is for one x - queries + 1 places after it."""
    device, last = where.q_pos.device, where.start + where.shape[0] - 1
    pos = torch.arange(first, max(first, stop), device=device)[None, :, None]
    query = torch.tensor([[[last]]], device=device)
    return replace(where, q_pos=query, k_pos=pos, start=0, window=None, q_document=None, k_document=None)
