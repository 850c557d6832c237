"""Numbers that each head has of its own, where groups of query heads share a key head."""

from jaxtyping import Float
from torch import Tensor

from ordinate.checks import need, need_positive


def key_heads(heads: int, kv_heads: int | None) -> int:
    """How many heads keys have: as many as queries unless said otherwise.

    Raises:
        ValueError: there are none, or they do not divide the heads of the queries.
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


def for_heads(table: Float[Tensor, "g *rest"], heads: int) -> Float[Tensor, "h *rest"]:
    """A row for each head, from one for each group of heads: the heads of a group stand together.

    Raises:
        ValueError: the groups do not divide the heads.
    """
    groups = table.shape[0]
    need(
        heads % groups == 0,
        "each row of numbers serves as many heads as the others",
        f"got {groups} rows for {heads} heads",
        "build the scheme with the model's heads and kv_heads",
    )
    return table.repeat_interleave(heads // groups, 0)
