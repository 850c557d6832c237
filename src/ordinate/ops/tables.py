"""Tables of trained numbers, made to another size."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Between = Literal["linear", "bilinear", "bicubic"]


def resize(table: Float[Tensor, "*sizes columns"], sizes: tuple[int, ...], between: Between) -> Tensor:
    """A table of other sizes, read off between the rows of the old one; its middle stays in the middle.

    Args:
        table: a row of numbers for each place on one axis or two.
        sizes: how many places each axis shall have.
        between: the interpolation, one that fits the number of axes.
    """
    # places count at their middle, as in the published resizing of Swin's tables
    wide = table.movedim(-1, 0)[None].to(torch.promote_types(table.dtype, torch.float32))
    made = torch.nn.functional.interpolate(wide, size=sizes, mode=between, align_corners=False)
    return made[0].movedim(0, -1).to(table.dtype)
