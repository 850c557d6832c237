"""Products with vectors of distances, read by pairs as a view that begins one column later in each row."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.product import long_product, times_transposed

Vectors = Float[Tensor, "distances d"]


class Part(NamedTuple):
    """Some keys of a block.

    Args:
        begin: the first key of the block.
        columns: where they stand among the keys of the block.
        reads: what their pairs read of tables of distances; a single entry serves all pairs.
    """

    begin: int
    columns: slice
    reads: slice

    @property
    def keys(self) -> slice:
        """Where they stand among all keys."""
        return slice(self.begin + self.columns.start, self.begin + self.columns.stop)

    @property
    def alone(self) -> bool:
        """Whether all pairs read one vector."""
        return self.reads.stop - self.reads.start == 1


def met(x: Float[Tensor, "n d"], vectors: Vectors, part: Part) -> Float[Tensor, "n #m"]:
    """The product of each x with the vector that each of its pairs reads."""
    vectors = vectors[part.reads]
    products = x @ vectors.t() if part.alone else times_transposed(x, vectors)
    return products if part.alone else _skewed(products, len(vectors) - len(x))


class Read:
    """What pairs weigh, added up by the vector that they read.

    Args:
        pairs: a number for each.
        part: says what they read.
    """

    def __init__(self, pairs: Float[Tensor, "n m"], part: Part) -> None:
        self.part = part
        self.weights = pairs.sum(1, keepdim=True) if part.alone else straight(pairs)

    def of(self, vectors: Vectors, kept: torch.dtype) -> Float[Tensor, "n d"]:
        """The weighted sum of the vectors, to be kept in the type `kept`."""
        vectors = vectors[self.part.reads]
        return self.weights * vectors if self.part.alone else long_product(self.weights, vectors, kept)

    def add(self, x: Float[Tensor, "n d"], sums: Float[Tensor, "d distances"]) -> None:
        """Add to each vector's sum the weighted sum of the x that met it."""
        x = x.t().contiguous()
        sums[:, self.part.reads] += x @ self.weights if self.part.alone else times_transposed(x, self.weights.t())


def _skewed(products: Float[Tensor, "n distances"], columns: int) -> Float[Tensor, "n m"]:
    """A view that begins one column later in each row."""
    return products.as_strided((len(products), columns), (products.shape[1] + 1, 1))


def straight(pairs: Float[Tensor, "n m"]) -> Float[Tensor, "n distances"]:
    """The way back from the view: what belongs to one distance stands in one column."""
    rows, columns = pairs.shape
    apart = pairs.new_zeros(rows, rows + columns)
    _skewed(apart, columns).copy_(pairs)
    return apart
