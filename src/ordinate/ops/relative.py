"""Relative position vectors (Shaw, Transformer-XL, DeBERTa) without a tensor of queries x keys x channels."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.checks import need

VectorTable = Float[Tensor, "#h rows d"]
# the row of a table for each pair of a query and a key
RowIndex = Int[Tensor, "#b i j"]
VectorPerOffset = Float[Tensor, "#h #offsets d"]


class Projection(NamedTuple):
    """Weight and bias of the query or key projection of a layer."""

    weight: Float[Tensor, "out width"]
    bias: Float[Tensor, "out"] | None


class RelativeVectors(NamedTuple):
    """Relative position vectors by offset x: terms of the scores, and of the attention output (Shaw et al., eq. 3).

        content_bias(i, j) = q_i . asked[x] + k_j . held[x] + number[x]
        carry_i = sum_j weight_ij carried[x]

    Args:
        query_vectors: vectors multiplied with queries.
        key_vectors: vectors multiplied with keys; a single one is shared by all offsets.
        bias: scalar biases, independent of content.
        value_vectors: vectors added to the values.
        reach: all offsets from this one on, in either direction, share their vectors [tokens].
    """

    query_vectors: VectorPerOffset | None = None
    key_vectors: VectorPerOffset | None = None
    bias: Float[Tensor, "#h #offsets"] | None = None
    value_vectors: VectorPerOffset | None = None
    reach: float = math.inf


def chosen_rows(table: VectorTable, rows: Int[Tensor, "offsets"]) -> VectorPerOffset:
    """Return rows of a table, some of them several times; on GPUs gradients are summed in a fixed order.

    The backward pass of `index_select` adds to a row from several threads there, in no fixed order.
    """
    heads, size, width = table.shape
    # the backward pass of an embedding sorts the indices
    if size > len(rows):
        # the table is not copied to choose some of its rows
        index = rows + size * torch.arange(heads, device=rows.device)[:, None]
        return nn.functional.embedding(index, table.flatten(0, 1))
    # longer rows are faster
    made = nn.functional.embedding(rows, table.transpose(0, 1).flatten(1))
    return made.unflatten(1, (heads, width)).transpose(0, 1)


def add_vectors(one: RelativeVectors | None, other: RelativeVectors | None) -> RelativeVectors | None:
    """Add the relative vectors of two schemes in the same heads; None if one of them does not provide any."""
    if one is None or other is None:
        return None
    sums = (a if b is None else b if a is None else a + b for a, b in zip(one[:4], other[:4], strict=True))
    return RelativeVectors(*sums, reach=max(one.reach, other.reach))


def concat_vectors(parts: Sequence[RelativeVectors | None], heads: int) -> RelativeVectors | None:
    """Concatenate the relative vectors of schemes with a share of the heads each; None if one provides none."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    joined = (_joined(same, heads // len(parts)) for same in zip(*(part[:4] for part in found), strict=True))
    return RelativeVectors(*joined, reach=max(part.reach for part in found))


def _joined(parts: Sequence[Tensor | None], share: int) -> Tensor | None:
    some = [part for part in parts if part is not None]
    if not some:
        return None
    shape = torch.broadcast_shapes(*(part.shape[1:] for part in some))
    nothing = some[0].new_zeros(1, *shape)
    return torch.cat([(nothing if part is None else part).expand(share, *shape) for part in parts])


def gather_products(x: Float[Tensor, "b h i d"], table: VectorTable, row: RowIndex) -> Float[Tensor, "b h i j"]:
    """Product of each vector with the table row of its pair: x_i . table[row(i, j)].

    All products with the table are computed first and then gathered, in float32 or wider: memory is that of the
    scores plus one number per vector and row.

    Args:
        x: queries or keys.
        table: one per head, or one shared by all heads.
        row: row of each pair.

    Raises:
        ValueError: the table has another number of heads or another width.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    check_table(table, x.shape[1], x.shape[3])
    # a product by `@` would copy the table for each sequence
    products = torch.einsum("bhid,hrd->bhir", x.to(wide), table.to(wide))
    return products.gather(-1, row[:, None].expand(*x.shape[:3], row.shape[2]))


def scatter_weighted_sum(
    weights: Float[Tensor, "b h i j"], table: VectorTable, row: RowIndex
) -> Float[Tensor, "b h i d"]:
    """Weighted sum of the table rows of a query's pairs: sum_j weights_ij table[row(i, j)].

    Weights are summed per row first, in float32 or wider; the result has the dtype of the weights.

    Args:
        weights: attention weights.
        table: one per head, or one shared by all heads.
        row: row of each pair.

    Raises:
        ValueError: the table has another number of heads.
    """
    wide = torch.promote_types(weights.dtype, torch.float32)
    check_table(table, weights.shape[1], table.shape[2])
    shares = torch.zeros(*weights.shape[:3], table.shape[1], dtype=wide, device=weights.device)
    shares = shares.scatter_add(-1, row[:, None].expand(weights.shape), weights.to(wide))
    return torch.einsum("bhir,hrd->bhid", shares, table.to(wide)).to(weights.dtype)


def check_table(table: VectorTable, heads: int, width: int) -> None:
    """Raise a ValueError unless relative vectors have the width and the heads of the queries, or one shared head."""
    need(
        (table.shape[0] == 1 or table.shape[0] == heads) and table.shape[2] == width,
        "relative position vectors must have as many heads as the queries, or one, and their head width",
        lambda: (
            f"got vectors for {table.shape[0]} heads of width {table.shape[2]}, and {heads} heads of width {width}"
        ),
        "build the scheme with the heads and head_width of the model",
    )
