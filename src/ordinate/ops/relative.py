"""Vectors that belong to pairs of a query and a key, without a vector for each pair ever being made."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.checks import need

Table = Float[Tensor, "#h rows d"]
# which row of a table each pair of a query and a key reads
Rows = Int[Tensor, "#b i j"]


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
