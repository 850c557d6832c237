"""Attention with a bias by offset by PyTorch's fused kernel for CPUs, in blocks of queries: O(n) memory.

The kernel reads its mask by strides, and takes channels as contiguous, whatever their stride. As in
`ordinate.ops.offset_bias_attention`, the rows of a block are in reverse order, and the mask is a view of the table
with strides (1, 1): no bias of queries x keys is materialised, and keys that causality or a window hide from a whole
block are not read.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Keys, LogSumExp, OffsetTable, Outputs, Queries, Values
from ordinate.core.tensors import contiguous_channels
from ordinate.ops.blocks import QueryBlock, largest_blocks, query_blocks
from ordinate.ops.matmul import gradient_type, onednn_is_faster
from ordinate.ops.offset_bias_attention import ROWS, head_cuts

# queries of a block where few keys are hidden: from this number on the kernel takes more of them at a time; and the
# number of keys from which on few are hidden by causality
LONG_ROWS, LONG = 768, 4096
# with fewer keys, looking for those that could be left out takes as long as they do
MIN_KEYS = 3072
# largest log-sum-exp for which weights are computed from it: it is rounded at its own size
MAX_LOG_SUM_EXP = 256.0


def is_faster(q: Queries, v: Values) -> bool:
    """Whether the kernel is faster than matrix products and a softmax here: where PyTorch's BLAS is, as on Intel's.

    The kernel has no values of another width than that of the keys.
    """
    known = hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu")
    return known and not onednn_is_faster() and q.shape[3] == v.shape[3]


def is_accurate(lse: LogSumExp) -> bool:
    """Whether gradients may be computed from this log-sum-exp of each query."""
    return bool(lse.abs().amax() <= MAX_LOG_SUM_EXP)


class Part(NamedTuple):
    """Heads whose blocks have the same keys.

    Args:
        rows: sequences.
        heads: query heads.
        key_heads: key heads.
        blocks: blocks of queries with their keys.
        type: dtype of the operands.
    """

    rows: slice
    heads: slice
    key_heads: slice
    blocks: list[QueryBlock]
    type: torch.dtype

    def of_queries(self, x: Tensor) -> Tensor:
        """Return a view of what belongs to the query heads."""
        return x[self.rows, self.heads]

    def reversed(self, x: Tensor, block: QueryBlock) -> Tensor:
        """Return what belongs to the query heads and a block for the products, in reverse order of queries."""
        return contiguous_channels(self.of_queries(x)[:, :, block.rows].to(self.type).flip(2))

    def store(self, x: Tensor, block: QueryBlock, made: Tensor) -> None:
        """Store what was computed for a block, in reverse order of queries."""
        self.of_queries(x)[:, :, block.rows] = made.flip(2)

    def of_keys(self, x: Tensor) -> Tensor:
        """Return a view of what belongs to the key heads."""
        return x[self.rows, self.key_heads]

    def for_each_block(self, compute: "BlockFunction", k: Keys, v: Values) -> None:
        """Call a function with each block, and with the keys and values of the part for the products.

        A function, so that nothing of a part or a block is held while the next one is computed.
        """
        keys, values = (contiguous_channels(self.of_keys(x).to(self.type)) for x in (k, v))
        for block in self.blocks:
            compute(self, block, keys, values)

    def mask(self, table: OffsetTable, where: Geometry, block: QueryBlock) -> Float[Tensor, "1 heads rows keys"]:
        """Return the bias of a block, -inf where a pair is masked: a view, but for packed or padded texts."""
        own, first = table[self.heads], block.first
        bias = own.as_strided((1, len(own), *block.size), (0, own.stride(0), 1, 1), own.storage_offset() + first)
        if where.q_document is None:
            return bias
        visible = where.block(block.rows, block.keys).visible
        return bias.masked_fill(~visible[min(self.rows.start, len(visible) - 1)].flip(0), float("-inf"))


BlockFunction = Callable[[Part, QueryBlock, Keys, Values], None]
"""What is computed for a block of a part, with the keys and values of the part."""


def parts(q: Queries, k: Keys, table: OffsetTable, where: Geometry, scale: float) -> Iterator[Part]:
    """Yield parts that can be computed at once; those of packed texts, and converted ones, hold one sequence."""
    (batch, heads), key_heads = q.shape[:2], k.shape[1]
    type, keys = gradient_type(q.dtype), where.shape[1]
    cuts = None if keys < MIN_KEYS else head_cuts(q, k, table, where, scale)
    if cuts is None or not cuts.differ:
        few = where.window is None and (keys >= LONG or not where.is_causal)
        blocks = query_blocks(where, LONG_ROWS if few else ROWS)
        size = batch if where.q_document is None and type == q.dtype else 1
        for row in range(0, batch, size):
            yield Part(slice(row, row + size), slice(heads), slice(key_heads), blocks, type)
        return
    for row, head in itertools.product(range(batch), range(heads)):
        group = head * key_heads // heads
        own = slice(row, row + 1), slice(head, head + 1), slice(group, group + 1)
        yield Part(*own, cuts.of(row, head).query_blocks, type)


def largest_part(q: Queries, k: Keys, table: OffsetTable, where: Geometry, scale: float) -> Part:
    """Return the largest blocks of a part: while they are computed, as much is held as during the whole."""
    part = next(parts(q, k, table, where, scale))
    return part._replace(blocks=largest_blocks(part.blocks))


def forward(
    inputs: tuple[Queries, Keys, Values, OffsetTable], where: Geometry, scale: float, only: Iterable[Part] = ()
) -> tuple[Outputs, LogSumExp]:
    """Return softmax(q k^T scale + table) v over visible pairs, and the log-sum-exp of each query's scores.

    Both are 0 for fully masked queries.

    Args:
        inputs: queries, keys, values, and the bias by offset of each head, -inf where causal mask or window apply.
        where: the geometry.
        scale: multiplies q.k.
        only: the parts to compute; empty: all.
    """
    q, k, v, table = inputs
    out, lse = torch.empty_like(q), table.new_empty(q.shape[:3])

    def compute(part: Part, block: QueryBlock, keys: Keys, values: Values) -> None:
        own = part.reversed(q, block), keys[:, :, block.keys], values[:, :, block.keys]
        made, made_lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *own, attn_mask=part.mask(table, where, block), scale=scale
        )
        part.store(out, block, made)
        part.store(lse, block, made_lse)

    for part in only or parts(q, k, table, where, scale):
        part.for_each_block(compute, k, v)
    return out, lse


def backward(
    gradient: Outputs,
    inputs: tuple[Queries, Keys, Values, OffsetTable],
    results: tuple[Outputs, LogSumExp],
    where: Geometry,
    scale: float,
) -> tuple[Queries, Keys, Values]:
    """Return the gradients of q, k and v; the kernel has none of its mask.

    Args:
        gradient: that of the output.
        inputs: queries, keys, values and table.
        results: what the forward pass returned.
        where: the geometry.
        scale: multiplies q.k.
    """
    q, k, v, table = inputs
    to_q, to_k, to_v = torch.empty_like(q), *(torch.zeros_like(x, dtype=table.dtype) for x in (k, v))

    def compute(part: Part, block: QueryBlock, keys: Keys, values: Values) -> None:
        up, asked, kept = (part.reversed(x, block) for x in (gradient, q, results[0]))
        own = part.of_queries(results[1])[:, :, block.rows].flip(2)
        read = keys[:, :, block.keys], values[:, :, block.keys]
        made, of_keys, of_values = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            up, asked, *read, kept, own, 0.0, False, attn_mask=part.mask(table, where, block), scale=scale
        )
        part.store(to_q, block, made)
        part.of_keys(to_k)[:, :, block.keys] += of_keys
        part.of_keys(to_v)[:, :, block.keys] += of_values

    for part in parts(q, k, table, where, scale):
        part.for_each_block(compute, k, v)
    return to_q, to_k.to(k.dtype), to_v.to(v.dtype)
