"""Attention with a bias that depends on the offset alone, in blocks of queries: O(n) memory, forward and backward.

The rows of a block are in reverse order. The bias of row r and key j is then table[j + r + c]: a view of the table
with strides (1, 1), so that no bias of queries x keys is materialised. Causal mask and window are -inf in the table.

Scores are in base 2, divided by ln 2, since PyTorch computes 2^x almost twice as fast as e^x.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Keys, OffsetTable, Outputs, Queries, Values
from ordinate.ops.blocks import QueryBlock, query_blocks
from ordinate.ops.decay_cutoff import relevant_keys
from ordinate.ops.matmul import gradient_type, matmul_partial_sums, matmul_transposed
from ordinate.ops.skew import unskew

ROWS = 256
# the number of keys of a block is a multiple of it where negligible ones are left out
KEYS = 64
# longest partial sum in gradients of queries: with it, errors are as small as those of PyTorch's attention
PARTIAL_SUM = 512
LOG2E = 1 / math.log(2)
Factors = Callable[[Tensor], Tensor]


def masked_offsets(where: Geometry, device: torch.device) -> Bool[Tensor, " offsets"]:
    """Table entries masked by causality or window; entry x belongs to the offset key - query = x - queries + 1."""
    queries, keys = where.shape
    ahead = torch.arange(1 - queries, keys, device=device) - where.start
    hidden = ahead > 0 if where.is_causal else torch.zeros_like(ahead, dtype=torch.bool)
    return hidden if where.window is None else hidden | (ahead.abs() >= where.window)


def masked_table(table: OffsetTable | None, where: Geometry, heads: int, type: torch.dtype) -> OffsetTable:
    """Table of biases by offset for every head (zeros if there is none), -inf where causal mask or window apply."""
    hidden = masked_offsets(where, where.q_pos.device)
    table = hidden.new_zeros(1, len(hidden), dtype=type) if table is None else table.to(type)
    return table.masked_fill(hidden, float("-inf")).expand(heads, -1)


class Dropout(NamedTuple):
    """Dropout of attention weights with a fixed seed, so that the backward pass redraws the same mask.

    Args:
        share: dropout probability.
        seed: of the generator.
    """

    share: float
    seed: int

    def begin(self) -> Factors:
        """Return a function that draws the dropout factors of one block after another."""
        kept, generator = 1 - self.share, torch.Generator().manual_seed(self.seed)
        return lambda weights: torch.empty_like(weights).bernoulli_(kept, generator=generator).div_(kept)


class RowSums(NamedTuple):
    """The softmax of each query without its numerators; the queries are in reverse order.

    Args:
        largest: the largest score, in base 2; 0 of a fully masked query.
        totals: the sum of 2^(score - largest); 1 of a fully masked query.
    """

    largest: Float[Tensor, "*b i 1"]
    totals: Float[Tensor, "*b i 1"]

    @classmethod
    def empty(cls, q: Queries) -> "RowSums":
        """Return memory for the sums of all queries."""
        return cls(*q.new_empty(2, *q.shape[:3], 1).unbind())

    def select(self, *index: int | slice) -> "RowSums":
        """Return views of some queries."""
        return RowSums(self.largest[index], self.totals[index])


def forward(
    q: Queries,
    k: Keys,
    v: Values,
    table: OffsetTable,
    where: Geometry,
    scale: float,
    drop: Dropout | None = None,
    sums: RowSums | None = None,
) -> Outputs:
    """softmax(q k^T scale + table) v over visible pairs; 0 for fully masked queries.

    Args:
        q: queries.
        k: keys.
        v: values.
        table: bias by offset of each head, -inf where causal mask or window apply.
        where: the geometry.
        scale: multiplies q.k.
        drop: dropout of the weights.
        sums: where the sums of each query are written; None: nowhere.
    """
    factors = None if drop is None else drop.begin()
    out = q.new_empty(*q.shape[:3], v.shape[3])
    cuts, groups = head_cuts(q, k, table, where, scale), q.shape[1] // k.shape[1]
    for row, head in itertools.product(*map(range, q.shape[:2])):
        keys, values = (widened(x[row, head // groups]) for x in (k, v))
        cut, log2_table = cuts.of(row, head), table[head] * LOG2E
        # the longest block first: its freed memory is reused by all others
        for block in reversed(cut.query_blocks):
            # a block at a time, so that no copy of all rows is held beside the weights
            queries = reversed_rows(q[row, head, block.rows])
            weights, own = _unnormalised_weights(queries, keys, log2_table, where, scale, row, block)
            if sums is not None:
                for kept, x in zip(sums.select(row, head, block.reverse), own, strict=True):
                    kept.copy_(x)
            weights = weights if factors is None else weights.mul_(factors(weights))
            # divided after the product, which has fewer elements
            made = cut.product(weights, values[block.keys], q.dtype).div_(own.totals)
            # not held while the next block is computed
            del weights
            out[row, head, block.rows] = made.flip(0)
    return out


def backward(
    gradient: Outputs,
    inputs: tuple[Queries, Keys, Values, OffsetTable],
    where: Geometry,
    scale: float,
    learned: bool,
    drop: Dropout | None = None,
) -> tuple[Queries, Keys, Values, OffsetTable | None]:
    """Return the gradients of q, k, v and, if it is learned, of the table; weights are recomputed."""
    q, k, v, table = inputs
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    dt = torch.zeros_like(table) if learned else None
    factors = None if drop is None else drop.begin()
    cuts, groups = head_cuts(q, k, table, where, scale), q.shape[1] // k.shape[1]
    for row, group in itertools.product(*map(range, k.shape[:2])):
        keys, values = widened(k[row, group]), widened(v[row, group])
        back = _WayBack(keys, values, q.dtype, factors)
        for head in range(group * groups, (group + 1) * groups):
            queries, upstream = reversed_rows(q[row, head]), reversed_rows(gradient[row, head])
            made, sums = torch.empty_like(queries), None if dt is None else dt[head]
            log2_table = table[head] * LOG2E
            for block in reversed(cuts.of(row, head).query_blocks):
                rows = queries[block.reverse]
                weights, own = _unnormalised_weights(rows, keys, log2_table, where, scale, row, block)
                weights.mul_(own.totals.reciprocal_())
                made[block.reverse] = back.add(block, weights, rows, upstream[block.reverse], sums)
            dq[row, head] = made.mul_(scale).flip(0)
        dk[row, group], dv[row, group] = back.to_keys.mul_(scale).t(), back.to_values.t()
    return dq, dk, dv, dt


def dropout_factors(
    inputs: tuple[Queries, Keys, Values, OffsetTable], where: Geometry, scale: float, drop: Dropout
) -> Callable[[QueryBlock], Tensor]:
    """Return a function from a block to the dropout factors of all heads, as the forward pass drew them.

    For second derivatives; it holds one bool for each pair.
    """
    q, k, _, table = inputs
    draw, kept = drop.begin(), q.new_zeros(*q.shape[:3], k.shape[2], dtype=torch.bool)
    wide = torch.promote_types(q.dtype, torch.float32)
    cuts = head_cuts(q, k, table, where, scale)
    for row, head in itertools.product(*map(range, q.shape[:2])):
        for block in reversed(cuts.of(row, head).query_blocks):
            kept[row, head, block.rows, block.keys] = draw(q.new_empty(block.size, dtype=wide)).flip(0) > 0
    return lambda block: kept[:, :, block.rows, block.keys].to(wide) / (1 - drop.share)


class _WayBack:
    """Gradients of one key head and of the query heads that share it, accumulated block by block.

    Args:
        keys: in float32 or wider.
        values: likewise.
        kept: dtype of the gradients.
        factors: dropout factors of each block, in the order of the forward pass; None: no dropout.
    """

    def __init__(self, keys: Tensor, values: Tensor, kept: torch.dtype, factors: Factors | None) -> None:
        self.narrow = gradient_type(kept)
        self.values, self.held, self.kept, self.factors = values, keys.to(self.narrow), kept, factors
        # transposed, since products of that form are faster
        self.to_keys, self.to_values = keys.new_zeros(keys.shape[::-1]), values.new_zeros(values.shape[::-1])

    def add(
        self, block: QueryBlock, weights: Tensor, queries: Tensor, upstream: Tensor, sums: Tensor | None
    ) -> Tensor:
        """Return the gradient of a block's queries; accumulate those of keys, values and, in `sums`, of the table."""
        slope, kept = matmul_transposed(upstream, self.values[block.keys]), weights
        if self.factors is not None:
            factor = self.factors(weights)
            slope, kept = slope.mul_(factor), factor.mul_(weights)
        torch._softmax_backward_data(slope, weights, -1, slope.dtype, grad_input=slope)
        if sums is not None:
            _add_diagonals(sums, slope, block)
        kept, slope = kept.to(self.narrow), slope.to(self.narrow)
        self.to_values[:, block.keys] += matmul_transposed(self._columns(upstream), kept.t())
        self.to_keys[:, block.keys] += matmul_transposed(self._columns(queries), slope.t())
        return matmul_partial_sums(slope, self.held[block.keys], self.kept, longest=PARTIAL_SUM)

    def _columns(self, x: Tensor) -> Tensor:
        return x.to(self.narrow).t().contiguous()


class _Cut(NamedTuple):
    """Blocks of one head, without the keys of negligible weight.

    Args:
        query_blocks: blocks of queries with their keys.
        far: whether the last block has all of its keys.
    """

    query_blocks: list[QueryBlock]
    far: bool

    def product(self, weights: Tensor, values: Tensor, kept: torch.dtype) -> Tensor:
        """Return weights times values, for rounding to this type; without far keys a long sum is accurate enough."""
        return matmul_partial_sums(weights, values, kept) if self.far else matmul_transposed(weights, values.t())


class HeadCuts(NamedTuple):
    """Blocks of all heads.

    Args:
        whole: blocks with all keys that causality and window allow.
        low: the first key that is not negligible in each block, for each sequence and head; None: none is.
        high: the end of these keys, likewise.
    """

    whole: list[QueryBlock]
    low: list[list[list[int]]] | None = None
    high: list[list[list[int]]] | None = None

    @property
    def differ(self) -> bool:
        """Whether the blocks of some heads have fewer keys than those of others."""
        return self.low is not None

    @property
    def largest(self) -> tuple[int, int]:
        """A sequence and a head whose largest block has as many query-key pairs as any."""
        if self.low is None or self.high is None:
            return 0, 0
        heads = itertools.product(range(len(self.low)), range(len(self.low[0])))
        return max(heads, key=lambda at: max(math.prod(block.size) for block in self.of(*at).query_blocks))

    def of(self, row: int, head: int) -> _Cut:
        """Return the blocks of one head."""
        if self.low is None or self.high is None:
            return _Cut(self.whole, far=True)
        ends = zip(self.whole, self.low[row][head], self.high[row][head], strict=True)
        cut = [block.within(first, stop) for block, first, stop in ends]
        return _Cut(cut, far=cut[-1].keys == self.whole[-1].keys)


def head_cuts(q: Queries, k: Keys, table: OffsetTable, where: Geometry, scale: float) -> HeadCuts:
    """Return the blocks that remain after skipping negligible keys."""
    found = query_blocks(where, ROWS)
    ranges = relevant_keys(q, k, table, where, scale, ROWS)
    if ranges is None:
        return HeadCuts(found)
    # rounded: oneDNN caches a kernel for each size of a product
    return HeadCuts(found, (ranges[0] // KEYS * KEYS).tolist(), (-(-ranges[1] // KEYS) * KEYS).tolist())


def _unnormalised_weights(
    queries: Tensor, keys: Tensor, log2_table: Tensor, where: Geometry, scale: float, row: int, block: QueryBlock
) -> tuple[Tensor, RowSums]:
    """Return the numerators and the sums of the softmax of each row of a block.

    Rows are in reverse order; a fully masked one has numerators of 0.

    Args:
        queries: those of the block.
        log2_table: biases by offset of this head, divided by ln 2.
    """
    scores = matmul_transposed(queries, keys[block.keys])
    bias = log2_table.as_strided(block.size, (1, 1), log2_table.storage_offset() + block.first)
    torch.add(bias, scores, alpha=scale * LOG2E, out=scores)
    if where.q_document is not None:
        visible = where.block(block.rows, block.keys).visible
        scores.masked_fill_(~visible[min(row, len(visible) - 1)].flip(0), float("-inf"))
    largest = scores.amax(-1, keepdim=True)
    if where.q_document is None and where.window is None:
        weights = scores.sub_(largest).exp2_()
        return weights, RowSums(largest, weights.sum(-1, keepdim=True))
    empty = largest == float("-inf")
    weights = scores.sub_(largest.masked_fill_(empty, 0.0)).exp2_()
    return weights, RowSums(largest, weights.sum(-1, keepdim=True).masked_fill_(empty, 1.0))


def _add_diagonals(sums: Tensor, slope: Tensor, block: QueryBlock) -> None:
    """Add the gradient of each table entry: the sum over the pairs with its offset (an anti-diagonal of `slope`)."""
    rows, keys = block.size
    # the last column has no pair; a product, since PyTorch's sum over rows is slower with AVX-512
    sums[block.first : block.first + keys + rows - 1] += (slope.new_ones(1, rows) @ unskew(slope))[0, :-1]


def widened(x: Tensor) -> Tensor:
    """Return a contiguous tensor in float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32)).contiguous()


def reversed_rows(x: Tensor) -> Tensor:
    """Return a contiguous copy of rows in reverse order, in float32 or wider."""
    return widened(x.flip(0))
