"""Attention in blocks of rows, with vectors that belong to distances: O(n) memory, forward and backward.

A block's rows are taken in reverse, as in `ordinate.ops.tiles`. A product of the queries with the vectors of all
distances then holds what row r and key j need in column j + r of row r: a view with a longer step from row to row.
So does a product of the keys, on its side. Nothing is picked pair by pair.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.ops.blocks import Block, blocks
from ordinate.ops.product import long_product, times_transposed
from ordinate.ops.skew import Part, Read, met, straight
from ordinate.shapes import Keys, Outputs, Queries, Table, Values

ROWS = 256
# keys that meet the vectors of a block at a time
KEYS = 256
Each = Float[Tensor, "#h offsets d"]
Scores = Float[Tensor, "rows keys"]


class Setting(NamedTuple):
    """What of attention by vectors is no tensor.

    Args:
        where: the geometry, an ordered one.
        scale: multiplies q.k.
        reach: from this offset on, to either side, all offsets share their vectors [tokens].
    """

    where: Geometry
    scale: float
    reach: float


class Inputs(NamedTuple):
    """What attention by vectors reads; a table begins at the distance where the first block begins (`extent`).

    Args:
        q: queries.
        k: keys.
        v: values.
        table: what is added to the scores, -inf where causality and the window hide.
        asked: vectors that queries meet.
        held: vectors that keys meet; one alone serves all distances.
        carried: vectors that are added to the values.
    """

    q: Queries
    k: Keys
    v: Values
    table: Table
    asked: Each | None
    held: Each | None
    carried: Each | None


def extent(where: Geometry) -> tuple[int, int]:
    """Which entries of a table of distances the blocks of a geometry read: from here, to before there."""
    found = blocks(where, ROWS)
    return min(block.first for block in found), max(block.first + sum(block.size) for block in found)


def forward(inputs: Inputs, setting: Setting) -> Outputs:
    """softmax(q k^T scale + q asked + k held + table) (v + carried) over visible pairs; 0 where nothing is seen."""
    q, v = inputs.q, inputs.v
    out = q.new_empty(*q.shape[:3], v.shape[3])
    for row in range(q.shape[0]):
        for head in range(q.shape[1]):
            one = _Head(inputs, setting, row, head)
            for block in blocks(setting.where, ROWS):
                out[row, head, block.rows] = one.mixed(one.weights(block), block).flip(0)
    return out


def backward(gradient: Outputs, inputs: Inputs, setting: Setting, learned: bool) -> list[Tensor | None]:
    """The gradient of each input, of the table only if it is learned; the weights are computed again."""
    sums = _Sums.zeros(inputs, learned)
    for row in range(inputs.q.shape[0]):
        for head in range(inputs.q.shape[1]):
            one, own = _Head(inputs, setting, row, head), sums.of(row, head)
            upstream = gradient[row, head].to(sums.q.dtype).flip(0)
            for block in blocks(setting.where, ROWS):
                one.learn(block, upstream, own)
    made = (sums.q, sums.k.mT, sums.v.mT, sums.table, *(None if x is None else x.mT for x in sums[4:]))
    types = (None if x is None else x.dtype for x in inputs)
    return [None if x is None else x.to(type) for x, type in zip(made, types, strict=True)]


class _Sums(NamedTuple):
    """The gradients so far; transposed but for those of q and the table, since products of that form are faster."""

    q: Tensor
    k: Tensor
    v: Tensor
    table: Tensor | None
    asked: Tensor | None
    held: Tensor | None
    carried: Tensor | None

    @classmethod
    def zeros(cls, inputs: Inputs, learned: bool) -> "_Sums":
        """Nothing so far; those of q are set, not added to."""
        q, k, v, table, *vectors = inputs
        k, v = (x.new_zeros(x.mT.shape, dtype=table.dtype) for x in (k, v))
        turned = (None if x is None else x.new_zeros(x.mT.shape) for x in vectors)
        return cls(
            torch.empty_like(q, dtype=table.dtype), k, v, torch.zeros_like(table) if learned else None, *turned
        )

    def of(self, row: int, head: int) -> "_Sums":
        """Those of one head of one row of the batch."""
        group = head * self.k.shape[1] // self.q.shape[1]
        table = None if self.table is None else self.table[head]
        shared = (None if x is None else x[min(head, len(x) - 1)] for x in self[4:])
        return _Sums(self.q[row, head], self.k[row, group], self.v[row, group], table, *shared)


class _Head:
    """One head of one row of a batch."""

    def __init__(self, inputs: Inputs, setting: Setting, row: int, head: int) -> None:
        wide, group = inputs.table.dtype, head * inputs.k.shape[1] // inputs.q.shape[1]
        self.k, self.v = (x[row, group].to(wide).contiguous() for x in (inputs.k, inputs.v))
        self.q = inputs.q[row, head].to(wide).flip(0)
        self.scaled = self.q * setting.scale
        self.table, self.kept = inputs.table[head], inputs.q.dtype
        self.asked, self.held, self.carried = (None if x is None else x[min(head, len(x) - 1)] for x in inputs[4:])
        self.setting, self.row, self.low = setting, row, extent(setting.where)[0]

    def weights(self, block: Block) -> Scores:
        """The weights of a block."""
        rows = self._rows(block)
        scores = times_transposed(self.scaled[rows], self.k[block.keys])
        scores.add_(self.table[self._reads(block)].as_strided(block.size, (1, 1)))
        if self.asked is not None:
            for part in self._parts(block, self.asked):
                scores[:, part.columns].add_(met(self.q[rows], self.asked, part))
        if self.held is not None:
            for part in self._parts(block, self.held, KEYS):
                scores[:, part.columns].add_(met(self.k[part.keys], self.held, part).t())
        where = self.setting.where
        if where.q_document is None and where.window is None:
            return torch.softmax(scores, -1, out=scores)
        if where.q_document is not None:
            visible = where.block(block.rows, block.keys).visible
            scores.masked_fill_(~visible[min(self.row, len(visible) - 1)].flip(0), float("-inf"))
        # a row that sees nothing is reset, before the softmax and after it
        empty = scores.amax(-1, keepdim=True) == float("-inf")
        return torch.softmax(scores.masked_fill_(empty, 0.0), -1, out=scores).masked_fill_(empty, 0.0)

    def mixed(self, weights: Scores, block: Block) -> Tensor:
        """What the weights make of the values, and of what they carry."""
        out = long_product(weights, self.v[block.keys], self.kept)
        if self.carried is not None:
            for part in self._parts(block, self.carried):
                out += Read(weights[:, part.columns], part).of(self.carried, self.kept)
        return out

    def learn(self, block: Block, upstream: Tensor, sums: _Sums) -> None:
        """Add what a block gives to the sums of gradients, which are transposed but for those of q and the table."""
        weights, rows = self.weights(block), self._rows(block)
        up, q = upstream[rows], self.q[rows]
        sums.v[:, block.keys] += times_transposed(up.t().contiguous(), weights.t())
        slope = times_transposed(up, self.v[block.keys])
        if self.carried is not None and sums.carried is not None:
            for part in self._parts(block, self.carried):
                slope[:, part.columns].add_(met(up, self.carried, part))
                Read(weights[:, part.columns], part).add(up, sums.carried)
        slope = torch._softmax_backward_data(slope, weights, -1, slope.dtype)
        sums.k[:, block.keys] += times_transposed(self.scaled[rows].t().contiguous(), slope.t())
        to_q = long_product(slope, self.k[block.keys], self.kept).mul_(self.setting.scale)
        if self.asked is not None and sums.asked is not None:
            for part in self._parts(block, self.asked):
                read = Read(slope[:, part.columns], part)
                to_q += read.of(self.asked, self.kept)
                read.add(q, sums.asked)
        if self.held is not None and sums.held is not None:
            for part in self._parts(block, self.held, KEYS):
                read = Read(slope[:, part.columns].t(), part)
                sums.k[:, part.keys] += read.of(self.held, self.kept).t()
                read.add(self.k[part.keys], sums.held)
        sums.q[block.rows] = to_q.flip(0)
        if sums.table is not None:
            sums.table[self._reads(block)] += straight(slope).sum(0)

    def _rows(self, block: Block) -> slice:
        """Where the block's rows stand among all rows in reverse."""
        return slice(len(self.q) - block.rows.stop, len(self.q) - block.rows.start)

    def _reads(self, block: Block) -> slice:
        """What the block reads of tables of distances."""
        return slice(block.first - self.low, block.first - self.low + sum(block.size))

    def _parts(self, block: Block, vectors: Tensor, most: int | None = None) -> list[Part]:
        """The block cut by its keys: one part each side beyond the reach, and parts of up to `most` keys within."""
        (rows, keys), begin = block.size, block.first - self.low
        if len(vectors) == 1:
            return [Part(block.keys.start, slice(0, keys), slice(0, 1))]
        # the entry of offset 0
        same = self.setting.where.start + self.setting.where.shape[0] - 1
        reach = math.ceil(min(self.setting.reach, same + sum(self.setting.where.shape)))
        near = min(max(same - reach - block.first - rows + 2, 0), keys)
        far = min(max(same + reach - block.first, near), keys)
        cuts = [(0, near, 1), (far, keys, 1)]
        for start in range(near, far, most or keys):
            stop = min(start + (most or keys), far)
            cuts.append((start, stop, stop - start + rows))
        return [
            Part(block.keys.start, slice(start, stop), slice(begin + start, begin + start + count))
            for start, stop, count in cuts
            if start < stop
        ]
