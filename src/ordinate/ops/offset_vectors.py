"""Relative position vectors by offset: products with queries, keys and weights of a block, and their gradients.

A block of n queries and m keys has n + m - 1 offsets; that of row r and key c is number c - r + n - 1.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Bias, Keys, Outputs, Queries, Weights
from ordinate.ops.blocks import QueryBlock
from ordinate.ops.skew import add_sums_by_head, products_by_head, skewed_pairs, sums_by_head, unskewed_pairs
from ordinate.ops.vector_ranges import BlockOffsets

# keys per product with vectors: offsets that a product computes but does not use grow with it
KEYS = 128
SumsByOffset = Float[Tensor, "1 h i offsets"]


class OffsetVectors(NamedTuple):
    """Vectors by offset, (heads or 1, offsets or 1, width), or their gradients, (heads or 1, width, offsets or 1).

    Args:
        asked: vectors multiplied with queries; None: there are none.
        held: vectors multiplied with keys, in reverse order: from a key's side, offsets run the other way.
        carried: vectors added to the values.
    """

    asked: Tensor | None
    held: Tensor | None
    carried: Tensor | None

    def of_heads(self, heads: slice) -> "OffsetVectors":
        """Return those of some heads."""
        return OffsetVectors(*(x if x is None or len(x) == 1 else x[heads] for x in self))

    def of_block(self, cut: QueryBlock, low: int, reads: BlockOffsets, axis: int = 1) -> "OffsetVectors":
        """Return those of a block, without vectors that all offsets share; of the queries only those that are needed.

        Args:
            cut: the block.
            low: offset of the first vector.
            reads: the offsets that are needed.
            axis: the axis of the offsets.
        """
        first, count, made = cut.first - low, sum(cut.size) - 1, []
        whole, asked = (first, count), (first + reads.begin, reads.stop - reads.begin)
        for x, (start, size) in zip(self, (asked, whole, whole), strict=True):
            have = 1 if x is None else x.shape[axis]
            start = have - start - size if x is self.held else start
            made.append(None if x is None or have == 1 else x.narrow(axis, start, size))
        return OffsetVectors(*made)

    def shared(self, offset: int | None, axis: int = 1) -> "OffsetVectors":
        """Return those of one offset, (heads or 1, width); None: only vectors that all offsets share."""
        made = []
        for x in self:
            size = 1 if x is None else x.shape[axis]
            place = 0 if size == 1 or offset is None else size - 1 - offset if x is self.held else offset
            made.append(None if x is None or (size > 1 and offset is None) else x.select(axis, place))
        return OffsetVectors(*made)

    def bias(self, q: Queries, k: Keys, reads: BlockOffsets) -> Bias | None:
        """Return what the vectors of a block add to the score of each pair, a view; None: nothing."""
        rows, keys, made = q.shape[2], k.shape[2], None
        if self.asked is not None:
            products = products_by_head(q[0], self.asked)
            if products.shape[2] < reads.width:
                products = torch.nn.functional.pad(products, (reads.begin, reads.width - reads.stop))
            made = skewed_pairs(products[None], keys, rows - 1)
        if self.held is None:
            return made
        made = q.new_zeros(*q.shape[:3], keys) if made is None else made
        for part, read in _key_parts(rows, keys):
            products = products_by_head(k[0, :, part], self.held[:, read])
            made[..., part] += skewed_pairs(products[None], rows, part.stop - part.start - 1).mT
        return made

    def learn_bias(
        self,
        slopes: tuple[SumsByOffset, BlockOffsets],
        inputs: tuple[Queries, Keys],
        to: tuple[Tensor, Tensor],
        sums: "OffsetVectors",
    ) -> None:
        """Accumulate gradients with respect to the queries and keys of a block, and to its vectors.

        Args:
            slopes: gradient of the bias, of which `skewed_pairs` are a view, and the offsets.
            inputs: queries and keys.
            to: gradients of these, to which is added.
            sums: gradients of the vectors, to which is added.
        """
        (by_offset, reads), (q, k), (to_q, to_k) = slopes, inputs, to
        rows, keys = q.shape[2], k.shape[2]
        if self.asked is not None and sums.asked is not None:
            own = by_offset[0, :, :, reads.begin : reads.stop].contiguous()
            to_q += sums_by_head(own, self.asked)
            add_sums_by_head(own, q[0], sums.asked)
        if self.held is None or sums.held is None:
            return
        pairs = skewed_pairs(by_offset, keys, rows - 1)
        for part, read in _key_parts(rows, keys):
            count = part.stop - part.start
            own = unskewed_pairs(pairs[..., part].mT, count + rows - 1, count - 1)[0]
            to_k[:, :, part] += sums_by_head(own, self.held[:, read])
            add_sums_by_head(own, k[0, :, part], sums.held[:, :, read])

    def learn_sums(self, weights: Weights, upstream: Outputs, sums: "OffsetVectors") -> Weights | None:
        """Accumulate gradients of the vectors added to the values of a block; return those of the weights."""
        if self.carried is None or sums.carried is None:
            return None
        add_sums_by_head(weights_by_offset(weights)[0], upstream[0], sums.carried)
        products = products_by_head(upstream[0], self.carried)
        return skewed_pairs(products[None], weights.shape[3], weights.shape[2] - 1).contiguous()


def weights_by_offset(pairs: Weights) -> SumsByOffset:
    """Return the pairs of each row of a block by offset."""
    rows, keys = pairs.shape[2:]
    return unskewed_pairs(pairs, rows + keys - 1, rows - 1)


def _key_parts(rows: int, keys: int) -> Iterator[tuple[slice, slice]]:
    """Yield keys of a block, some at a time, and the vectors that they read, in reverse order."""
    for first in range(0, keys, KEYS):
        stop = min(first + KEYS, keys)
        yield slice(first, stop), slice(keys - stop, keys - first + rows - 1)
