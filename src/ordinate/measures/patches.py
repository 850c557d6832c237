"""Images cut into patches, and put together again in another order."""

from jaxtyping import Float, Int
from torch import Tensor

from ordinate.subject import Unfit

Images = Float[Tensor, "texts channels height width"]


def moved(images: Images, order: Int[Tensor, "texts n"], grid: tuple[int, int]) -> Images:
    """Images with their patches in this order.

    Args:
        images: pixels.
        order: which patch stands at each place, row after row.
        grid: rows and columns of patches.

    Raises:
        Unfit: pixels are left over at an edge.
    """
    (rows, columns), (count, channels, height, width) = grid, images.shape
    if height % rows or width % columns:
        raise Unfit(
            f"patches that change places are whole; {height} by {width} pixels make no {rows} by {columns} of them"
        )
    cut = images.reshape(count, channels, rows, height // rows, columns, width // columns).permute(0, 2, 4, 1, 3, 5)
    flat = cut.reshape(count, rows * columns, -1)
    again = flat.gather(1, order[..., None].expand_as(flat)).reshape(cut.shape)
    return again.permute(0, 3, 1, 4, 2, 5).reshape(images.shape)
