"""Windows in blocks that lie side by side, each attended to by itself."""

from dataclasses import replace

import torch
from torch import Tensor

from ordinate.fused import fused, unfit, widens
from ordinate.geometry import Geometry
from ordinate.ops.bands import block_rows, pieces, whole_blocks
from ordinate.ops.blocks import reachable
from ordinate.route import Call, Route, table_refused
from ordinate.scheme import Placed
from ordinate.shapes import Outputs


class Windowed(Route):
    """PyTorch's attention for blocks of queries, each with the keys that its window reaches: O(n w) on any device.

    The blocks whose windows lie inside the text are alike, so they make one batch, and share one mask. The rows
    before and after them are computed by themselves.
    """

    order = 350

    def refuses(self, call: Call) -> str | None:
        """Calls without a window, windows that hide little, and what PyTorch's attention refuses."""
        if call.where.window is None:
            return "there is no window"
        cut = _Cut(call.where)
        if cut.count < 2 or 2 * cut.length > call.where.shape[1]:
            return "the window hides less than half of the text"
        return table_refused(call) or unfit(call)

    def run(self, call: Call) -> Outputs:
        """A call of PyTorch's function for the blocks that are alike, and one for the rows before and after them."""
        cut = _Cut(call.where)
        parts = (
            _alone(call, 0, cut.first),
            _side_by_side(call, cut),
            _alone(call, cut.first + cut.count * cut.rows, call.where.shape[0]),
        )
        return torch.cat(parts, 2)

    def bytes(self, call: Call) -> int:
        """Keys and values, once for each block that sees them, and the mask."""
        cut, size = _Cut(call.where), 4 if widens(call) else call.q.element_size()
        copies = size * cut.count * cut.length * (call.k[:, :, 0].numel() + call.v[:, :, 0].numel())
        documents = 1 if call.where.q_document is None else call.q.shape[0] * cut.count
        mask = 4 * call.q.shape[1] if "bias" in call.at.scheme.hooks else 1
        return copies + documents * mask * cut.rows * cut.length


class _Cut:
    """The rows of a window cut into blocks.

    Attributes:
        rows: queries of a block.
        length: keys that a block is given: those of its own places, and whole blocks on the sides that it sees.
        first: the first query of the blocks whose keys all lie inside the text.
        key: the first key of the first of them.
        count: how many such blocks there are.
    """

    def __init__(self, where: Geometry) -> None:
        reach = (where.window or 1) - 1
        self.rows = block_rows(reach)
        behind = whole_blocks(reach, self.rows)
        ahead = 0 if where.hides_future else behind
        self.length = behind + self.rows + ahead
        queries, keys = where.shape
        self.first = min(max(0, behind - where.start), queries)
        self.key = where.start + self.first - behind
        last = min(queries, keys - where.start - ahead)
        self.count = max(0, last - self.first) // self.rows

    def queries(self, x: Tensor) -> Tensor:
        """What the queries of these blocks have of the last axis."""
        return x[..., self.first : self.first + self.count * self.rows]

    def keys(self, x: Tensor) -> Tensor:
        """What the keys of these blocks have of the last axis."""
        return x[..., self.key : self.key + (self.count - 1) * self.rows + self.length]


def _alone(call: Call, begin: int, end: int) -> Outputs:
    """The attention of some rows by themselves."""
    if begin == end:
        return call.q.new_empty(*call.q.shape[:2], 0, call.v.shape[3])
    rows, keys = slice(begin, end), reachable(call.where, begin, end)
    at = call.at.block(rows, keys)
    return fused(replace(call, q=call.q[:, :, rows], k=call.k[:, :, keys], v=call.v[:, :, keys], at=at))


def _side_by_side(call: Call, cut: _Cut) -> Outputs:
    """The attention of the blocks that are alike: a batch of them."""
    where, batch = call.where, call.q.shape[0]
    one = where.block(slice(cut.first, cut.first + cut.rows), slice(cut.key, cut.key + cut.length))
    # offsets follow places, so that one block's are those of all
    place = torch.arange(cut.length, device=call.q.device)[None, :, None]
    one = replace(one, q_pos=place[:, one.start : one.start + cut.rows], k_pos=place)
    if where.q_document is not None and where.k_document is not None:
        one = replace(
            one,
            q_document=pieces(cut.queries(where.q_document.expand(batch, -1)), cut.rows, cut.rows).flatten(0, 1),
            k_document=pieces(cut.keys(where.k_document.expand(batch, -1)), cut.length, cut.rows).flatten(0, 1),
        )
    q = cut.queries(call.q.mT).mT.unflatten(2, (cut.count, cut.rows)).transpose(1, 2).flatten(0, 1)
    k, v = (pieces(cut.keys(x.mT), cut.length, cut.rows).mT.flatten(0, 1) for x in (call.k, call.v))
    out = fused(replace(call, q=q, k=k, v=v, at=Placed(call.at.scheme, one)))
    return out.unflatten(0, (batch, cut.count)).transpose(1, 2).flatten(2, 3)
