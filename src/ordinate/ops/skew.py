"""Products with relative position vectors by the "skew" trick: a strided view aligns offsets with keys.

The functions of one head have rows in reverse order (`ordinate.ops.relative_vector_attention`), those of all heads in
the order of the queries.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.double_backward import one_by_one
from ordinate.ops.matmul import matmul_partial_sums, matmul_transposed

Vectors = Float[Tensor, "distances d"]


class KeyRange(NamedTuple):
    """A range of keys of a block.

    Args:
        begin: first key of the block.
        columns: range of these keys within the block.
        reads: range of table entries for their offsets; a single entry if all pairs share one vector.
    """

    begin: int
    columns: slice
    reads: slice

    @property
    def keys(self) -> slice:
        """Range of these keys among all keys."""
        return slice(self.begin + self.columns.start, self.begin + self.columns.stop)

    @property
    def alone(self) -> bool:
        """Whether all pairs share one vector."""
        return self.reads.stop - self.reads.start == 1


def relative_products(x: Float[Tensor, "n d"], vectors: Vectors, part: KeyRange) -> Float[Tensor, "n #m"]:
    """Product of each x with the vector of each of its pairs."""
    vectors = vectors[part.reads]
    products = x @ vectors.t() if part.alone else matmul_transposed(x, vectors)
    return products if part.alone else _skewed(products, len(vectors) - len(x))


class SkewedWeights:
    """Weights of pairs, summed over the pairs that share a vector (the transpose of `met`).

    Args:
        pairs: weight of each pair.
        part: the keys of the pairs, and the table entries that they use.
    """

    def __init__(self, pairs: Float[Tensor, "n m"], part: KeyRange) -> None:
        self.part = part
        self.weights = pairs.sum(1, keepdim=True) if part.alone else unskew(pairs)

    def of(self, vectors: Vectors, kept: torch.dtype) -> Float[Tensor, "n d"]:
        """Return the weighted sum of the vectors for each row, for rounding to the type `kept`."""
        vectors = vectors[self.part.reads]
        return self.weights * vectors if self.part.alone else matmul_partial_sums(self.weights, vectors, kept)

    def add(self, x: Float[Tensor, "n d"], sums: Float[Tensor, "d distances"]) -> None:
        """Add the gradients of the vectors, the weighted sums of x, to `sums`."""
        x = x.t().contiguous()
        sums[:, self.part.reads] += x @ self.weights if self.part.alone else matmul_transposed(x, self.weights.t())


def _skewed(products: Float[Tensor, "n distances"], columns: int) -> Float[Tensor, "n m"]:
    """View whose row r begins at column r: entry (r, j) is products[r, r + j], without a copy."""
    return products.as_strided((len(products), columns), (products.shape[1] + 1, 1))


def unskew(pairs: Float[Tensor, "n m"]) -> Float[Tensor, "n distances"]:
    """Transpose of the skewed view: pairs of one offset are in one column."""
    rows, columns = pairs.shape
    # with one column more, and reread without it, each row begins one column later than the row before
    padded = pairs.new_empty(rows, rows + columns + 1)
    padded[:, :columns], padded[:, columns:] = pairs, 0.0
    return padded.view(-1)[: rows * (rows + columns)].view(rows, rows + columns)


class ClippedVectors(NamedTuple):
    """Vectors by clipped offset: offsets before those given have the first vector, offsets after them the last.

    Args:
        vectors: one for each offset that is not clipped.
        before: number of offsets before them.
        after: number of offsets after them.
    """

    vectors: Float[Tensor, "#h different d"]
    before: int = 0
    after: int = 0

    @property
    def offsets(self) -> int:
        """Number of offsets."""
        return self.before + self.vectors.shape[1] + self.after

    def flip(self) -> "ClippedVectors":
        """Return them in the order of the negated offsets."""
        return ClippedVectors(self.vectors.flip(1), self.after, self.before)

    def spread(self, products: Float[Tensor, "*rows different"]) -> Float[Tensor, "*rows offsets"]:
        """Return a number of each offset, from one of each different vector."""
        if not self.before and not self.after:
            return products
        before, after = products[..., :1], products[..., -1:]
        sides = (*products.shape[:-1], self.before), (*products.shape[:-1], self.after)
        return torch.cat([before.expand(sides[0]), products, after.expand(sides[1])], -1)

    def gathered(self, numbers: Float[Tensor, "*rows offsets"]) -> Float[Tensor, "*rows different"]:
        """Return sums over the offsets that share a vector, the transpose of `spread`."""
        if not self.before and not self.after:
            return numbers
        low, high = self.before + 1, self.offsets - self.after - 1
        before, after = numbers[..., :low], numbers[..., high:]
        return torch.cat([before.sum(-1, keepdim=True), numbers[..., low:high], after.sum(-1, keepdim=True)], -1)


def pair_products(
    x: Float[Tensor, "b h n d"], by_offset: ClippedVectors, columns: int, first: int
) -> Float[Tensor, "b h n columns"]:
    """Product of each x with the vector of each of its pairs, x_r . vectors[c - r + first]: a view of all products.

    Pairs whose vector is not among those given read another product.

    Args:
        x: queries, or keys.
        by_offset: vectors of more than `columns` offsets, or one for all pairs.
        columns: number of columns.
        first: the offset of row 0 and column 0; at most offsets + n - 1 - columns.
    """
    vectors = by_offset.vectors
    if vectors.shape[1] == 1:
        return (x * vectors[:, 0, None]).sum(-1, keepdim=True).expand(-1, -1, -1, columns)
    batch, heads, n, width = x.shape
    # one product for each head, with all sequences: the gradient of a vector is summed in it
    rows = x.transpose(0, 1).reshape(heads, batch * n, width)
    products = by_offset.spread(torch.bmm(rows, vectors.mT.expand(heads, -1, -1))).unflatten(1, (batch, n))
    return skewed_pairs(products, columns, first).transpose(0, 1)


def pair_sums(
    weights: Float[Tensor, "b h n columns"], by_offset: ClippedVectors, first: int
) -> Float[Tensor, "b h n d"]:
    """Sum of the vectors of each row's pairs by their weights, sum_c weights_rc vectors[c - r + first].

    The transpose of `pair_products`: a pair whose vector is not among those given must have a weight of 0.
    """
    if by_offset.vectors.shape[1] == 1:
        return weights.sum(-1, keepdim=True) * by_offset.vectors
    batch, heads, n, _ = weights.shape
    apart = by_offset.gathered(_Unskewed.apply(weights.transpose(0, 1), by_offset.offsets, first))
    made = torch.bmm(apart.flatten(1, 2), by_offset.vectors.expand(heads, -1, -1))
    return made.unflatten(1, (batch, n)).transpose(0, 1)


class _Unskewed(torch.autograd.Function):
    """Pairs of one vector in one column, zeros elsewhere; its gradient is the skewed view."""

    @staticmethod
    def forward(ctx: Any, pairs: Tensor, offsets: int, first: int) -> Tensor:
        ctx.columns, ctx.first = pairs.shape[3], first
        return unskewed_pairs(pairs, offsets, first)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return one_by_one(
            lambda slope: (skewed_pairs(slope.contiguous(), ctx.columns, ctx.first), None, None), *grad_outputs
        )


def skewed_pairs(x: Float[Tensor, "h b n offsets"], columns: int, first: int) -> Float[Tensor, "h b n columns"]:
    """View of the entry c - r + first of each row r and column c."""
    strides = *x.stride()[:2], x.shape[3] - 1, 1
    return x.as_strided((*x.shape[:3], columns), strides, x.storage_offset() + first)


def unskewed_pairs(pairs: Float[Tensor, "h b n columns"], offsets: int, first: int) -> Float[Tensor, "h b n offsets"]:
    """Transpose of `skewed_pairs`: the pair of row r and column c is entry c - r + first of its row, others are 0."""
    apart = pairs.new_zeros(*pairs.shape[:3], offsets)
    skewed_pairs(apart, pairs.shape[3], first).copy_(pairs)
    return apart


def products_by_head(x: Float[Tensor, "h n d"], vectors: Float[Tensor, "#h m d"]) -> Float[Tensor, "h n m"]:
    """Product of each x with each vector of its head."""
    return _stacked([matmul_transposed(one, own) for one, own in _by_head(x, vectors)])


def sums_by_head(weights: Float[Tensor, "h n m"], vectors: Float[Tensor, "#h m d"]) -> Float[Tensor, "h n d"]:
    """Weighted sums of the vectors of each head."""
    return _stacked([matmul_partial_sums(one, own, own.dtype) for one, own in _by_head(weights, vectors)])


def add_sums_by_head(
    weights: Float[Tensor, "h n m"], x: Float[Tensor, "h n d"], sums: Float[Tensor, "#h d m"]
) -> None:
    """Add the gradients of the vectors of each head, the weighted sums of x, to `sums`."""
    for (own, total), one in zip(_by_head(weights, sums), x, strict=True):
        total += matmul_transposed(one.t().contiguous(), own.t())


def _by_head(x: Float[Tensor, "h *some"], other: Float[Tensor, "#h *any"]) -> list[tuple[Tensor, Tensor]]:
    """Pairs of what each head has, where one of them may be shared."""
    return list(zip(x, other.expand(len(x), -1, -1), strict=True))


def _stacked(parts: list[Tensor]) -> Tensor:
    # of a single head without a copy
    return parts[0][None] if len(parts) == 1 else torch.stack(parts)
