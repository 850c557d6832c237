"""Windows cut into blocks that lie side by side."""

from jaxtyping import Shaped
from torch import Tensor

# blocks have a multiple of so many rows: fewer cost more steps than they save
ROWS = 64


def block_rows(reach: int) -> int:
    """How many rows a block has whose window reaches so many places to one side: two blocks reach as far."""
    return ROWS * max(1, -(-reach // (2 * ROWS)))


def whole_blocks(reach: int, rows: int) -> int:
    """The places of as many whole blocks as reach so far: keys of even counts are multiplied faster."""
    return rows * -(-reach // rows)


def pieces(x: Shaped[Tensor, "b *rest n"], length: int, step: int) -> Shaped[Tensor, "b pieces *rest length"]:
    """All pieces of this length, each a step after the other: a view."""
    return x.unfold(-1, length, step).movedim(-2, 1)
