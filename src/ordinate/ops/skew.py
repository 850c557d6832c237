"""Products with relative position vectors by the "skew" trick: a strided view aligns offsets with keys."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

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
    apart = pairs.new_zeros(rows, rows + columns)
    _skewed(apart, columns).copy_(pairs)
    return apart
