"""Grouped-query attention: number of key heads, and per-head parameters for groups of query heads."""

from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need, need_positive


def resolve_kv_heads(heads: int, kv_heads: int | None) -> int:
    """Return the number of key heads: `kv_heads`, or as many as query heads if that is None.

    Raises:
        ValueError: a number is not positive, or kv_heads does not divide the query heads.
    """
    groups = heads if kv_heads is None else kv_heads
    need_positive("heads", heads)
    need_positive("kv_heads", groups)
    need(
        heads % groups == 0,
        "kv_heads must divide heads",
        f"got {groups} and {heads}",
        "choose kv_heads that divide heads",
    )
    return groups


def repeat_for_heads(table: Float[Tensor, "g *rest"], heads: int) -> Float[Tensor, "h *rest"]:
    """Repeat the row of each group for each of its query heads; the heads of a group are consecutive.

    Raises:
        ValueError: the groups do not divide the heads.
    """
    groups = table.shape[0]
    need(
        heads % groups == 0,
        "the number of heads must be a multiple of the rows of the table",
        lambda: f"got {groups} rows for {heads} heads",
        "build the scheme with the model's heads and kv_heads",
    )
    return table.repeat_interleave(heads // groups, 0)


def repeat_keys(x: Float[Tensor, "b g *rest"], heads: int) -> Float[Tensor, "b h *rest"]:
    """Repeat each head of keys or values for the query heads that share it; `x` itself if there are as many."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)
