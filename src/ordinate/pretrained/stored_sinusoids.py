"""Tables of sinusoids that a checkpoint stores."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.sinusoids import sinusoids


def sinusoid_table(length: int, width: int) -> Float[Tensor, "length width"]:
    """Return the table of sinusoids in float64, all sines before all cosines.

    Args:
        length: number of positions [tokens].
        width: columns.
    """
    places = torch.arange(length)[None, :, None]
    return sinusoids(places, width, theta=10_000.0, form="concatenated", odd="paper")[0]


def are_sinusoids(table: Tensor, length: int, width: int, *, rounded: bool = False) -> bool:
    """Whether a table is that of `sinusoid_table`, up to the rounding of angles in float32.

    Args:
        table: the table.
        length: number of positions [tokens].
        width: columns.
        rounded: whether one of 16 bits may have them, rounded.
    """
    if table.shape != (length, width) or not table.is_floating_point():
        return False
    limit = (1 + length) * torch.finfo(torch.float32).eps + (torch.finfo(table.dtype).eps if rounded else 0.0)
    return bool(((table.double() - sinusoid_table(length, width)).abs() <= limit).all())
