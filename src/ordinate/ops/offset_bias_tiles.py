"""The backward pass of attention with a bias by offset in tiles that stay in the cache, in float32.

    S = q k^T scale + table,   P = 2^(S - largest) / total,   dS = P (g v^T - g.o)

The largest score and the denominator of each query, and its output o, are those of the forward pass, as in
FlashAttention (Dao et al. 2022, https://arxiv.org/abs/2205.14135). Whole rows (`ordinate.ops.offset_bias_attention`)
take two matrices of 256 rows and all keys, of 4 MB for 4096 keys, which leave the cache between two steps.
Tiles stay there, and PyTorch's BLAS multiplies into memory that is used again. With AVX-512 on AMD's processors
oneDNN multiplies whole rows faster.

PyTorch's attention subtracts the same g.o, and errors are as small as its own; whole rows sum it from P and g v^T.
"""

import itertools
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Keys, OffsetTable, Outputs, Queries, Values
from ordinate.ops import offset_bias_attention
from ordinate.ops.blocks import QueryBlock
from ordinate.ops.matmul import blas_is_fast, gradient_type
from ordinate.ops.offset_bias_attention import LOG2E, Dropout, Factors, RowSums, head_cuts, reversed_rows

# keys of a tile
TILE = 512
# rows and columns of the products whose diagonal is g.o: they add in the order of g v^T, so that both are equal where
# one key has all the weight
DIAGONAL = 64
# numbers behind each row of the gradients of scores, by which rows begin at multiples of 32 bytes
SPARE = 8


def is_faster(q: Queries) -> bool:
    """Whether tiles are faster than whole rows here."""
    return q.dtype == torch.float32 and blas_is_fast()


def trains_faster(q: Queries) -> bool:
    """Whether matrix products, in tiles or whole rows, are faster in training than PyTorch's fused kernel.

    The backward pass of that takes up to twice their time where products have operands in float32.
    """
    return blas_is_fast() and gradient_type(q.dtype) == torch.float32


def backward(
    gradient: Outputs,
    inputs: tuple[Queries, Keys, Values, OffsetTable],
    results: tuple[Outputs, RowSums],
    where: Geometry,
    scale: float,
    learned: bool,
    drop: Dropout | None = None,
) -> tuple[Queries, Keys, Values, OffsetTable | None]:
    """Return the gradients of q, k, v and, if it is learned, of the table.

    Args:
        gradient: that of the output.
        inputs: queries, keys, values and table, in float32 or wider.
        results: what the forward pass returned.
        where: the geometry.
        scale: multiplies q.k.
        learned: whether the gradient of the table is asked for.
        drop: the dropout of the forward pass.
    """
    (q, k, v, table), (out, sums) = inputs, results
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    dt = torch.zeros_like(table) if learned else None
    factors = None if drop is None else drop.begin()
    cuts, groups = head_cuts(q, k, table, where, scale), q.shape[1] // k.shape[1]
    for row, group in itertools.product(*map(range, k.shape[:2])):
        back = _WayBack(k[row, group], v[row, group], factors)
        for head in range(group * groups, (group + 1) * groups):
            scores = _Scores(back.keys, table[head], where, scale, row)
            queries, upstream, outputs = (reversed_rows(x[row, head]) for x in (q, gradient, out))
            rows = _Rows.of(queries, upstream, outputs, sums.select(row, head))
            made = torch.empty_like(rows.queries)
            for block in reversed(cuts.of(row, head).query_blocks):
                own = _Rows(*(x[block.reverse] for x in rows))
                made[block.reverse] = back.add(scores, block, own, None if dt is None else dt[head])
            dq[row, head] = made.mul_(scale).flip(0)
        dk[row, group], dv[row, group] = back.to_keys.joined().mul_(scale), back.to_values.joined()
    return dq, dk, dv, dt


class _Rows(NamedTuple):
    """Queries of one head, in reverse order, and what the gradients of their scores are made of.

    Args:
        queries: the queries.
        upstream: gradient of the output over the denominator of the softmax.
        common: its product with the output, which the gradients of all weights of a row are reduced by.
        largest: the largest score.
    """

    queries: Float[Tensor, "rows d"]
    upstream: Float[Tensor, "rows e"]
    common: Float[Tensor, "rows 1"]
    largest: Float[Tensor, "rows 1"]

    @classmethod
    def of(cls, queries: Tensor, gradient: Tensor, out: Tensor, sums: RowSums) -> "_Rows":
        """Return them from the gradient of the output, which is overwritten, and the results of the forward pass."""
        upstream = gradient.div_(sums.totals)
        pairs = zip(upstream.split(DIAGONAL), out.split(DIAGONAL), strict=True)
        common = torch.cat([(one @ other.t()).diagonal() for one, other in pairs])[:, None]
        return cls(queries, upstream, common, sums.largest)


class _KeyTiles:
    """Vectors of all keys, transposed, in contiguous tiles of keys."""

    def __init__(self, x: Float[Tensor, "keys d"]) -> None:
        self.pieces = [piece.t().contiguous() for piece in x.split(TILE)]

    def __getitem__(self, keys: slice) -> Float[Tensor, "d some"]:
        """Return a view of the columns of these keys, which are in one tile."""
        piece, first = divmod(keys.start, TILE)
        return self.pieces[piece][:, first : first + keys.stop - keys.start]

    def joined(self) -> Float[Tensor, "keys d"]:
        """Return the vectors of all keys."""
        return torch.cat(self.pieces, 1).t()


class _Scores:
    """Scores of the queries of one head, in base 2, tile by tile.

    Args:
        keys: keys of the head.
        table: biases by offset of the head.
        where: the geometry.
        scale: multiplies q.k.
        row: index of the sequence.
    """

    def __init__(self, keys: _KeyTiles, table: Tensor, where: Geometry, scale: float, row: int) -> None:
        self.keys, self.table, self.scale = keys, table * LOG2E, scale * LOG2E
        self.where, self.row, self.room = where, row, table.new_empty(offset_bias_attention.ROWS * TILE)

    def __call__(self, queries: Tensor, tile: QueryBlock) -> Float[Tensor, "rows keys"]:
        """Return the scores of a tile, which those of the next one overwrite."""
        rows, keys = tile.size
        scores = torch.mm(queries, self.keys[tile.keys], out=self.room[: rows * keys].view(rows, keys))
        bias = self.table.as_strided(tile.size, (1, 1), self.table.storage_offset() + tile.first)
        torch.add(bias, scores, alpha=self.scale, out=scores)
        if self.where.q_document is None:
            return scores
        visible = self.where.block(tile.rows, tile.keys).visible
        return scores.masked_fill_(~visible[min(self.row, len(visible) - 1)].flip(0), float("-inf"))


class _WayBack:
    """Gradients of one key head and of the query heads that share it, accumulated tile by tile.

    Args:
        keys: keys of the head.
        values: their values.
        factors: dropout factors of each block, in the order of the forward pass; None: no dropout.
    """

    def __init__(self, keys: Tensor, values: Tensor, factors: Factors | None) -> None:
        self.held, self.factors = keys.contiguous(), factors
        # zeros behind each row: where rows overlap by one column more, a column has the pairs of one offset
        rows = offset_bias_attention.ROWS
        self.room, self.ones = keys.new_zeros(rows, TILE + rows + SPARE), keys.new_ones(1, rows)
        self.keys, self.values, self.to_keys, self.to_values = (
            _KeyTiles(x) for x in (keys, values, torch.zeros_like(keys), torch.zeros_like(values))
        )

    def add(self, scores: _Scores, block: QueryBlock, rows: _Rows, sums: Tensor | None) -> Tensor:
        """Return the gradient of a block's queries; accumulate those of keys, values and, in `sums`, of the table."""
        made, above, queries = torch.zeros_like(rows.queries), *(x.t().contiguous() for x in rows[1::-1])
        factors = None if self.factors is None else self.factors(made.new_empty(block.size))
        first = block.keys.start
        for start in range(first // TILE * TILE, block.keys.stop, TILE):
            tile = block.within(start, start + TILE)
            weights = scores(rows.queries, tile).sub_(rows.largest).exp2_()
            slope, kept = self.room[: tile.size[0], : tile.size[1]], weights
            torch.mm(rows.upstream, self.values[tile.keys], out=slope)
            if factors is not None:
                factor = factors[:, tile.keys.start - first : tile.keys.stop - first]
                slope, kept = slope.mul_(factor), weights * factor
            slope.sub_(rows.common).mul_(weights)
            if sums is not None:
                self._add_diagonals(sums, tile)
            self.to_values[tile.keys].addmm_(above, kept)
            self.to_keys[tile.keys].addmm_(queries, slope)
            made.addmm_(slope, self.held[tile.keys])
        return made

    def _add_diagonals(self, sums: Tensor, tile: QueryBlock) -> None:
        """Add the gradient of each table entry: the sum over the pairs with its offset, an anti-diagonal."""
        rows, keys = tile.size
        # of a tile with more keys before this one
        self.room[:rows, keys:TILE] = 0
        offsets = self.room.as_strided((rows, rows + keys - 1), (self.room.shape[1] - 1, 1))
        # a product: PyTorch's sum over rows is slower
        sums[tile.first : tile.first + rows + keys - 1] += (self.ones[:, :rows] @ offsets)[0]
