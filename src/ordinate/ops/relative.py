"""Vectors that belong to pairs of a query and a key, without a vector for each pair ever being made."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.checks import need

Table = Float[Tensor, "#h rows d"]
# which row of a table each pair of a query and a key reads
Rows = Int[Tensor, "#b i j"]
Each = Float[Tensor, "#h #offsets d"]


class Projection(NamedTuple):
    """A matrix that makes queries or keys of token vectors, and what is added after it."""

    weight: Float[Tensor, "out width"]
    bias: Float[Tensor, "out"] | None


class Vectors(NamedTuple):
    """A vector for each offset, x, of which a bias from content is made, and what is carried to the output.

        content_bias(i, j) = q_i . asked[x] + k_j . held[x] + number[x]
        carry_i = sum_j weight_ij carried[x]

    Args:
        asked: met by queries.
        held: met by keys; a single one serves all offsets.
        number: met by nothing.
        carried: added to values.
        reach: from this offset on, to either side, all offsets share their vectors [tokens].
    """

    asked: Each | None = None
    held: Each | None = None
    number: Float[Tensor, "#h #offsets"] | None = None
    carried: Each | None = None
    reach: float = math.inf


def added(one: Vectors | None, other: Vectors | None) -> Vectors | None:
    """The vectors of two schemes in the same heads; None where one has none to tell."""
    if one is None or other is None:
        return None
    sums = (a if b is None else b if a is None else a + b for a, b in zip(one[:4], other[:4], strict=True))
    return Vectors(*sums, reach=max(one.reach, other.reach))


def beside(parts: Sequence[Vectors | None], heads: int) -> Vectors | None:
    """The vectors of schemes that share the heads out; None where one has none to tell."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    joined = (_joined(same, heads // len(parts)) for same in zip(*(part[:4] for part in found), strict=True))
    return Vectors(*joined, reach=max(part.reach for part in found))


def _joined(parts: Sequence[Tensor | None], share: int) -> Tensor | None:
    some = [part for part in parts if part is not None]
    if not some:
        return None
    shape = torch.broadcast_shapes(*(part.shape[1:] for part in some))
    nothing = some[0].new_zeros(1, *shape)
    return torch.cat([(nothing if part is None else part).expand(share, *shape) for part in parts])


def look_up(x: Float[Tensor, "b h i d"], table: Table, row: Rows) -> Float[Tensor, "b h i j"]:
    """The product of each vector with the row that its pair reads: x_i . table[row(i, j)].

    Products with all rows are taken first and then picked from, in float32 at least: the memory is that of the
    scores and of one product for each vector and row.

    Args:
        x: queries or keys.
        table: one for each head, or one for all.
        row: for each pair.

    Raises:
        ValueError: the table has other heads, or another width.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    check_fit(table, x.shape[1], x.shape[3])
    products = x.to(wide) @ table.to(wide).mT
    return products.gather(-1, row[:, None].expand(*x.shape[:3], row.shape[2]))


def gather_up(weights: Float[Tensor, "b h i j"], table: Table, row: Rows) -> Float[Tensor, "b h i d"]:
    """The weighted sum of the rows that the pairs of a query read: sum_j weights_ij table[row(i, j)].

    The weights of each row are added up first, in float32 at least; the type of the weights comes out.

    Args:
        weights: of each pair.
        table: one for each head, or one for all.
        row: for each pair.

    Raises:
        ValueError: the table has other heads.
    """
    wide = torch.promote_types(weights.dtype, torch.float32)
    check_fit(table, weights.shape[1], table.shape[2])
    shares = torch.zeros(*weights.shape[:3], table.shape[1], dtype=wide, device=weights.device)
    shares = shares.scatter_add(-1, row[:, None].expand(weights.shape), weights.to(wide))
    return (shares @ table.to(wide)).to(weights.dtype)


def check_fit(table: Table, heads: int, width: int) -> None:
    """Raise a ValueError unless the vectors of a scheme fit the heads of the queries that meet them."""
    need(
        (table.shape[0] == 1 or table.shape[0] == heads) and table.shape[2] == width,
        "the vectors of a scheme must have the heads of the queries, or one for all, and their width",
        lambda: (
            f"got vectors for {table.shape[0]} heads of width {table.shape[2]}, and {heads} heads of width {width}"
        ),
        "build the scheme with the heads and head_width of the model",
    )
