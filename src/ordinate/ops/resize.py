"""Resample a trained table to another size."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

Align = Literal["centres", "ends"]


def resize_line(table: Float[Tensor, "n width"], length: int, align: Align) -> Float[Tensor, "length width"]:
    """A table of positions on a line, stretched or squeezed to `length` rows by linear interpolation.

        out[i] = (1 - t) table[j] + t table[j + 1],    j + t = the place of i in the old table
        centres:  (i + 1/2) n / length - 1/2, not beyond the ends
        ends:     i (n - 1) / (length - 1)

    Args:
        table: a row for each position.
        length: rows of the result.
        align: `centres` takes rows for cells of a fixed length, `ends` keeps the first and the last row.
    """
    if length == table.shape[0]:
        return table.clone()
    wide = table.double().mT[None]
    out = interpolate(wide, size=length, mode="linear", align_corners=align == "ends")
    return out[0].mT.to(table.dtype).contiguous()


def resize_plane(
    table: Float[Tensor, "h w width"], rows: int, columns: int, *, antialias: bool
) -> Float[Tensor, "rows columns width"]:
    """A table of rows and columns, stretched or squeezed by bicubic interpolation; cells keep their centres.

    Args:
        table: a vector for each row and column.
        rows: rows of the result.
        columns: columns of the result.
        antialias: average over all cells that a new one covers, by Keys' cubic with a = -1/2; otherwise over four
            on each axis, with a = -3/4.
    """
    if (rows, columns) == table.shape[:2]:
        return table.clone()
    wide = table.double().permute(2, 0, 1)[None]
    out = interpolate(wide, size=(rows, columns), mode="bicubic", antialias=antialias)
    return out[0].permute(1, 2, 0).to(table.dtype).contiguous()
