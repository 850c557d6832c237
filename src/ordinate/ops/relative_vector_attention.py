"""Attention with relative position vectors, in blocks of queries: O(n) memory, forward and backward.

The rows of a block are in reverse order, as in `ordinate.ops.offset_bias_attention`. In the product of the queries
with the vectors of all offsets, the entry for row r and key j is then in column j + r of row r: a strided view
(`ordinate.ops.skew`) aligns it with the scores. The product of keys with vectors is the same, transposed. Nothing is
gathered per pair.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Keys, OffsetTable, Outputs, Queries, Values
from ordinate.ops.blocks import QueryBlock, query_blocks
from ordinate.ops.matmul import matmul_partial_sums, matmul_transposed
from ordinate.ops.skew import KeyRange, SkewedWeights, relative_products, unskew

ROWS = 256
# keys per product with relative vectors: offsets that a product computes but does not use grow with it
KEYS = 128
VectorPerOffset = Float[Tensor, "#h offsets d"]
Scores = Float[Tensor, "rows keys"]


class VectorOptions(NamedTuple):
    """Non-tensor arguments.

    Args:
        where: the geometry, with consecutive positions.
        scale: multiplies q.k.
        reach: all offsets from this one on, in either direction, share their vectors [tokens].
    """

    where: Geometry
    scale: float
    reach: float


class VectorInputs(NamedTuple):
    """Tensor arguments; tables begin at the first offset that a block reads (`extent`).

    Args:
        q: queries.
        k: keys.
        v: values.
        table: bias added to the scores, -inf where causal mask or window apply.
        query_vectors: vectors multiplied with queries.
        key_vectors: vectors multiplied with keys; a single one is shared by all offsets.
        value_vectors: vectors added to the values.
    """

    q: Queries
    k: Keys
    v: Values
    table: OffsetTable
    query_vectors: VectorPerOffset | None
    key_vectors: VectorPerOffset | None
    value_vectors: VectorPerOffset | None


class VectorEngine(NamedTuple):
    """One way to compute attention with relative vectors.

    Args:
        forward: returns the outputs and the tensors that the backward pass needs beside inputs and options.
        backward: returns the gradient of each input, from the gradient of the outputs, the inputs, the options,
            whether the table is learned, and these tensors.
    """

    forward: Callable[[VectorInputs, VectorOptions], tuple[Outputs, tuple[Tensor, ...]]]
    backward: Callable[[Outputs, VectorInputs, VectorOptions, bool, tuple[Tensor, ...]], list[Tensor | None]]


def extent(where: Geometry) -> tuple[int, int]:
    """Return the range [begin, end) of the entries of a full table of offsets that the blocks of a geometry read."""
    found = query_blocks(where, ROWS)
    return min(block.first for block in found), max(block.first + sum(block.size) for block in found)


def forward(inputs: VectorInputs, setting: VectorOptions) -> tuple[Outputs, tuple[Tensor, ...]]:
    """softmax(q k^T scale + q asked + k held + table) (v + carried) over visible pairs; 0 if fully masked."""
    q, v = inputs.q, inputs.v
    out = q.new_empty(*q.shape[:3], v.shape[3])
    for row in range(q.shape[0]):
        for head in range(q.shape[1]):
            one = _Head(inputs, setting, row, head)
            for block in query_blocks(setting.where, ROWS):
                out[row, head, block.rows] = one.mixed(one.weights(block), block).flip(0)
    return out, ()


def backward(
    gradient: Outputs, inputs: VectorInputs, setting: VectorOptions, learned: bool, kept: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """Return the gradient of each input, of the table only if it is learned; weights are computed again."""
    sums = _Sums.zeros(inputs, learned)
    for row in range(inputs.q.shape[0]):
        for head in range(inputs.q.shape[1]):
            one, own = _Head(inputs, setting, row, head), sums.of(row, head)
            upstream = gradient[row, head].to(sums.q.dtype).flip(0)
            for block in query_blocks(setting.where, ROWS):
                one.learn(block, upstream, own)
    made = (sums.q, sums.k.mT, sums.v.mT, sums.table, *(None if x is None else x.mT for x in sums[4:]))
    types = (None if x is None else x.dtype for x in inputs)
    return [None if x is None else x.to(type) for x, type in zip(made, types, strict=True)]


IN_PYTORCH = VectorEngine(forward, backward)


class _Sums(NamedTuple):
    """Accumulated gradients; all but q and table are transposed, since products of that form are faster."""

    q: Tensor
    k: Tensor
    v: Tensor
    table: Tensor | None
    asked: Tensor | None
    held: Tensor | None
    carried: Tensor | None

    @classmethod
    def zeros(cls, inputs: VectorInputs, learned: bool) -> "_Sums":
        """Allocate zeros; the gradient of q is written block by block, not accumulated."""
        q, k, v, table, *vectors = inputs
        k, v = (x.new_zeros(x.mT.shape, dtype=table.dtype) for x in (k, v))
        turned = (None if x is None else x.new_zeros(x.mT.shape) for x in vectors)
        return cls(
            torch.empty_like(q, dtype=table.dtype), k, v, torch.zeros_like(table) if learned else None, *turned
        )

    def of(self, row: int, head: int) -> "_Sums":
        """Views of the gradients of one head of one sequence."""
        group = head * self.k.shape[1] // self.q.shape[1]
        table = None if self.table is None else self.table[head]
        shared = (None if x is None else x[min(head, len(x) - 1)] for x in self[4:])
        return _Sums(self.q[row, head], self.k[row, group], self.v[row, group], table, *shared)


class _Head:
    """One head of one sequence, its queries in reverse order."""

    def __init__(self, inputs: VectorInputs, setting: VectorOptions, row: int, head: int) -> None:
        wide, group = inputs.table.dtype, head * inputs.k.shape[1] // inputs.q.shape[1]
        self.k, self.v = (x[row, group].to(wide).contiguous() for x in (inputs.k, inputs.v))
        self.q = inputs.q[row, head].to(wide).flip(0)
        self.scaled = self.q * setting.scale
        self.table, self.kept = inputs.table[head], inputs.q.dtype
        self.asked, self.held, self.carried = (None if x is None else x[min(head, len(x) - 1)] for x in inputs[4:])
        self.setting, self.row, self.low = setting, row, extent(setting.where)[0]

    def weights(self, block: QueryBlock) -> Scores:
        """Attention weights of a block."""
        rows = self._rows(block)
        scores = matmul_transposed(self.scaled[rows], self.k[block.keys])
        scores.add_(self.table[self._reads(block)].as_strided(block.size, (1, 1)))
        if self.asked is not None:
            for part in self._parts(block, self.asked):
                scores[:, part.columns].add_(relative_products(self.q[rows], self.asked, part))
        if self.held is not None:
            for part in self._parts(block, self.held, KEYS):
                scores[:, part.columns].add_(relative_products(self.k[part.keys], self.held, part).t())
        where = self.setting.where
        if where.q_document is None and where.window is None:
            return torch.softmax(scores, -1, out=scores)
        if where.q_document is not None:
            visible = where.block(block.rows, block.keys).visible
            scores.masked_fill_(~visible[min(self.row, len(visible) - 1)].flip(0), float("-inf"))
        # a fully masked row is set to 0 before the softmax, which would be NaN, and again after it
        empty = scores.amax(-1, keepdim=True) == float("-inf")
        return torch.softmax(scores.masked_fill_(empty, 0.0), -1, out=scores).masked_fill_(empty, 0.0)

    def mixed(self, weights: Scores, block: QueryBlock) -> Tensor:
        """Return weights times values and relative value vectors."""
        out = matmul_partial_sums(weights, self.v[block.keys], self.kept)
        if self.carried is not None:
            for part in self._parts(block, self.carried):
                out += SkewedWeights(weights[:, part.columns], part).of(self.carried, self.kept)
        return out

    def learn(self, block: QueryBlock, upstream: Tensor, sums: _Sums) -> None:
        """Accumulate the gradients of a block."""
        weights, rows = self.weights(block), self._rows(block)
        up, q = upstream[rows], self.q[rows]
        sums.v[:, block.keys] += matmul_transposed(up.t().contiguous(), weights.t())
        slope = matmul_transposed(up, self.v[block.keys])
        if self.carried is not None and sums.carried is not None:
            for part in self._parts(block, self.carried):
                slope[:, part.columns].add_(relative_products(up, self.carried, part))
                SkewedWeights(weights[:, part.columns], part).add(up, sums.carried)
        slope = torch._softmax_backward_data(slope, weights, -1, slope.dtype)
        sums.k[:, block.keys] += matmul_transposed(self.scaled[rows].t().contiguous(), slope.t())
        to_q = matmul_partial_sums(slope, self.k[block.keys], self.kept).mul_(self.setting.scale)
        if self.asked is not None and sums.asked is not None:
            for part in self._parts(block, self.asked):
                read = SkewedWeights(slope[:, part.columns], part)
                to_q += read.of(self.asked, self.kept)
                read.add(q, sums.asked)
        if self.held is not None and sums.held is not None:
            for part in self._parts(block, self.held, KEYS):
                read = SkewedWeights(slope[:, part.columns].t(), part)
                sums.k[:, part.keys] += read.of(self.held, self.kept).t()
                read.add(self.k[part.keys], sums.held)
        sums.q[block.rows] = to_q.flip(0)
        if sums.table is not None:
            sums.table[self._reads(block)] += unskew(slope).sum(0)

    def _rows(self, block: QueryBlock) -> slice:
        """Range of the block's rows among all rows in reverse order."""
        return slice(len(self.q) - block.rows.stop, len(self.q) - block.rows.start)

    def _reads(self, block: QueryBlock) -> slice:
        """Range of table entries that the block reads."""
        return slice(block.first - self.low, block.first - self.low + sum(block.size))

    def _parts(self, block: QueryBlock, vectors: Tensor, most: int | None = None) -> list[KeyRange]:
        """Split the block by keys: one part on each side beyond the reach, and parts of up to `most` keys within."""
        (rows, keys), begin = block.size, block.first - self.low
        if len(vectors) == 1:
            return [KeyRange(block.keys.start, slice(0, keys), slice(0, 1))]
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
            KeyRange(block.keys.start, slice(start, stop), slice(begin + start, begin + start + count))
            for start, stop, count in cuts
            if start < stop
        ]
