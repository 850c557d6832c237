"""Image patches: permute the patches of an image."""

from jaxtyping import Float, Int
from torch import Tensor

from ordinate.probing._adapter import NotApplicable

Images = Float[Tensor, "texts channels height width"]


def permute_patches(images: Images, order: Int[Tensor, "texts n"], grid: tuple[int, int]) -> Images:
    """Permute the patches of images.

    Args:
        images: pixels.
        order: index of the patch for each grid cell, in row-major order.
        grid: rows and columns of patches.

    Raises:
        NotApplicable: the image size is not a multiple of the grid.
    """
    (rows, columns), (count, channels, height, width) = grid, images.shape
    if height % rows or width % columns:
        raise NotApplicable(
            f"permuting patches needs whole patches; {height} x {width} pixels do not divide into {rows} x {columns}"
        )
    cut = images.reshape(count, channels, rows, height // rows, columns, width // columns).permute(0, 2, 4, 1, 3, 5)
    flat = cut.reshape(count, rows * columns, -1)
    again = flat.gather(1, order[..., None].expand_as(flat)).reshape(cut.shape)
    return again.permute(0, 3, 1, 4, 2, 5).reshape(images.shape)
