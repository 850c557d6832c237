"""Attention in blocks of rows, with a bias that depends on the distance alone: O(n) memory, forward and backward.

A block's rows are taken in reverse. The bias of row r and key j is then table[j + r + c]: a view of the table with
strides (1, 1), so that no bias of queries x keys exists. Causality and windows are -inf in the table.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.ops.blocks import Block, blocks
from ordinate.ops.product import gradient_type, long_product, times_transposed
from ordinate.ops.reach import first_keys
from ordinate.shapes import Keys, Outputs, Queries, Table, Values

ROWS = 256
# slopes that are added up at once: with these, gradients are as close as those of PyTorch's attention
SUMMED = 1024
Factors = Callable[[Tensor], Tensor]


def hidden_offsets(where: Geometry, device: torch.device) -> Bool[Tensor, " offsets"]:
    """Which entries of a table causality and the window hide; entry x is for keys x - queries + 1 places ahead."""
    queries, keys = where.shape
    ahead = torch.arange(1 - queries, keys, device=device) - where.start
    hidden = ahead > 0 if where.hides_future else torch.zeros_like(ahead, dtype=torch.bool)
    return hidden if where.window is None else hidden | (ahead.abs() >= where.window)


def masked_table(table: Table | None, where: Geometry, heads: int, type: torch.dtype) -> Table:
    """A bias by distance for every head, zeros if there is none, -inf where causality and the window hide."""
    hidden = hidden_offsets(where, where.q_pos.device)
    table = hidden.new_zeros(1, len(hidden), dtype=type) if table is None else table.to(type)
    return table.masked_fill(hidden, float("-inf")).expand(heads, -1)


class Drop(NamedTuple):
    """Weights set to zero at random, the others larger to make up for it: the same each time it begins.

    Args:
        share: of the weights.
        seed: of the generator.
    """

    share: float
    seed: int

    def begin(self) -> Factors:
        """What draws a factor for each weight of a block, block after block."""
        kept, generator = 1 - self.share, torch.Generator().manual_seed(self.seed)
        return lambda weights: torch.empty_like(weights).bernoulli_(kept, generator=generator).div_(kept)


def forward(
    q: Queries, k: Keys, v: Values, table: Table, where: Geometry, scale: float, drop: Drop | None = None
) -> Outputs:
    """softmax(q k^T scale + table) v over visible pairs; a row that sees nothing gives 0."""
    factors = None if drop is None else drop.begin()
    out = q.new_empty(*q.shape[:3], v.shape[3])
    cuts, groups = _cuts(q, k, table, where, scale), q.shape[1] // k.shape[1]
    for row, head in itertools.product(*map(range, q.shape[:2])):
        keys, values, queries = _wide(k[row, head // groups]), _wide(v[row, head // groups]), _reverse(q[row, head])
        made, cut = queries.new_empty(out.shape[2:]), cuts(row, head)
        # the longest first: what it frees holds the next
        for block in reversed(cut.blocks):
            weights = _weights(queries, keys, table[head], where, scale, row, block)
            weights = weights if factors is None else weights.mul_(factors(weights))
            made[block.reverse] = cut.product(weights, values[block.keys], q.dtype)
        out[row, head] = made.flip(0)
    return out


def backward(
    gradient: Outputs,
    inputs: tuple[Queries, Keys, Values, Table],
    where: Geometry,
    scale: float,
    learned: bool,
    drop: Drop | None = None,
) -> tuple[Queries, Keys, Values, Table | None]:
    """The gradients of q, k, v and, if it is learned, of the table: the weights are computed again."""
    q, k, v, table = inputs
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    dt = torch.zeros_like(table) if learned else None
    factors = None if drop is None else drop.begin()
    cuts, groups = _cuts(q, k, table, where, scale), q.shape[1] // k.shape[1]
    for row, group in itertools.product(*map(range, k.shape[:2])):
        keys, values = _wide(k[row, group]), _wide(v[row, group])
        back = _WayBack(keys, values, q.dtype, factors)
        for head in range(group * groups, (group + 1) * groups):
            queries, upstream = _reverse(q[row, head]), _reverse(gradient[row, head])
            made, sums = torch.empty_like(queries), None if dt is None else dt[head]
            for block in reversed(cuts(row, head).blocks):
                weights = _weights(queries, keys, table[head], where, scale, row, block)
                made[block.reverse] = back.add(block, weights, queries[block.reverse], upstream[block.reverse], sums)
            dq[row, head] = made.mul_(scale).flip(0)
        dk[row, group], dv[row, group] = back.to_keys.mul_(scale).t(), back.to_values.t()
    return dq, dk, dv, dt


class _WayBack:
    """The gradients of a head of keys, and of the heads of queries that share it, block by block.

    Args:
        keys: in float32 at least.
        values: likewise.
        kept: the type of the gradients.
        factors: of the weights of each block, in the order of the way forward; None: nothing is dropped.
    """

    def __init__(self, keys: Tensor, values: Tensor, kept: torch.dtype, factors: Factors | None) -> None:
        self.narrow = gradient_type(kept)
        self.values, self.held, self.kept, self.factors = values, keys.to(self.narrow), kept, factors
        # transposed, since products of that form are faster
        self.to_keys, self.to_values = keys.new_zeros(keys.shape[::-1]), values.new_zeros(values.shape[::-1])

    def add(self, block: Block, weights: Tensor, queries: Tensor, upstream: Tensor, sums: Tensor | None) -> Tensor:
        """The gradient of the queries of a block; the others grow, and so do the sums of the table."""
        slope, kept = times_transposed(upstream, self.values[block.keys]), weights
        if self.factors is not None:
            factor = self.factors(weights)
            slope, kept = slope.mul_(factor), factor.mul_(weights)
        torch._softmax_backward_data(slope, weights, -1, slope.dtype, grad_input=slope)
        if sums is not None:
            _add_diagonals(sums, slope, block)
        kept, slope = kept.to(self.narrow), slope.to(self.narrow)
        self.to_values[:, block.keys] += times_transposed(self._columns(upstream), kept.t())
        self.to_keys[:, block.keys] += times_transposed(self._columns(queries), slope.t())
        return long_product(slope, self.held[block.keys], self.kept, longest=SUMMED)

    def _columns(self, x: Tensor) -> Tensor:
        return x.to(self.narrow).t().contiguous()


class _Cut(NamedTuple):
    """The blocks of a head, without the keys that weigh nothing.

    Args:
        blocks: of rows, and their keys.
        far: whether the farthest keys are among them.
    """

    blocks: list[Block]
    far: bool

    def product(self, weights: Tensor, values: Tensor, kept: torch.dtype) -> Tensor:
        """Weights times values, to be kept in this type; where far keys weigh nothing, long sums do."""
        return long_product(weights, values, kept) if self.far else times_transposed(weights, values.t())


def _cuts(q: Queries, k: Keys, table: Table, where: Geometry, scale: float) -> Callable[[int, int], _Cut]:
    """What is left of each head of each row of the batch."""
    found = blocks(where, ROWS)
    first = first_keys(q, k, table, where, scale, ROWS)
    if first is None:
        return lambda row, head: _Cut(found, far=True)
    # whole blocks of keys: a product of sizes that came before starts sooner
    low = (first // ROWS * ROWS).tolist()
    return lambda row, head: _Cut(
        [block.after(key) for block, key in zip(found, low[row][head], strict=True)],
        far=low[row][head][-1] <= found[-1].keys.start,
    )


def _weights(
    queries: Tensor, keys: Tensor, table: Tensor, where: Geometry, scale: float, row: int, block: Block
) -> Tensor:
    """The weights of a block, its rows in reverse."""
    scores = times_transposed(queries[block.reverse], keys[block.keys])
    bias = table.as_strided(block.size, (1, 1), table.storage_offset() + block.first)
    torch.add(bias, scores, alpha=scale, out=scores)
    if where.q_document is None and where.window is None:
        return torch.softmax(scores, -1, out=scores)
    if where.q_document is not None:
        visible = where.block(block.rows, block.keys).visible
        scores.masked_fill_(~visible[min(row, len(visible) - 1)].flip(0), float("-inf"))
    # a row that sees nothing is reset, before the softmax and after it
    empty = scores.amax(-1, keepdim=True) == float("-inf")
    return torch.softmax(scores.masked_fill_(empty, 0.0), -1, out=scores).masked_fill_(empty, 0.0)


def _add_diagonals(sums: Tensor, slope: Tensor, block: Block) -> None:
    """Add what each entry of the table gets: the sums over the pairs as far apart."""
    rows, keys = block.size
    # a row longer by the number of rows shifts each row by one more place
    skewed = slope.new_empty(rows, keys + rows)
    skewed[:, :keys], skewed[:, keys:] = slope, 0.0
    summed = skewed.view(-1)[: rows * (keys + rows - 1)].view(rows, keys + rows - 1).sum(0)
    sums[block.first : block.first + keys + rows - 1] += summed


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32)).contiguous()


def _reverse(x: Tensor) -> Tensor:
    return _wide(x.flip(0))
