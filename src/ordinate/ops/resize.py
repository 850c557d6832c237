"""Resample learned position embeddings to another length or image size."""

from itertools import product
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import interpolate

from ordinate.core.tensors import in_float64, on_device

Align = Literal["centres", "ends"]


def resize_line(table: Float[Tensor, "n width"], length: int, align: Align) -> Float[Tensor, "length width"]:
    """Resample a 1D position embedding table to `length` rows by linear interpolation.

        out[i] = (1 - t) table[j] + t table[j + 1],    j + t: source coordinate of row i
        centres:  j + t = (i + 1/2) n / length - 1/2, clamped to the table
        ends:     j + t = i (n - 1) / (length - 1)

    Args:
        table: a row for each position.
        length: rows of the result.
        align: `centres` aligns the centres of cells, `ends` keeps the first and the last row (align_corners).
    """
    if length == table.shape[0]:
        return table.clone()
    wide = in_float64(table).mT[None]
    out = interpolate(wide, size=length, mode="linear", align_corners=align == "ends")
    return on_device(out[0].mT, table.dtype, table.device).contiguous()


def resize_plane(
    table: Float[Tensor, "h w width"], rows: int, columns: int, *, antialias: bool
) -> Float[Tensor, "rows columns width"]:
    """Resample a 2D position embedding table by bicubic interpolation, aligned at the centres of cells.

    Args:
        table: a vector for each row and column.
        rows: rows of the result.
        columns: columns of the result.
        antialias: average over all cells that a new one covers, with Keys' cubic kernel, a = -1/2; otherwise over
            four cells on each axis, with a = -3/4.
    """
    if (rows, columns) == table.shape[:2]:
        return table.clone()
    wide = in_float64(table)
    tall, broad = (
        _axis_weights(size, count, antialias=antialias).to(wide.device)
        for size, count in zip(table.shape[:2], (rows, columns), strict=True)
    )
    return on_device(torch.einsum("ri,cj,ijw->rcw", tall, broad, wide), table.dtype, table.device)


def _axis_weights(size: int, count: int, *, antialias: bool) -> Float[Tensor, "count size"]:
    """Return the weights by which cells of one axis are resampled, as PyTorch has them.

    PyTorch's own result on both axes is wrong where it has one column and several rows (2.13, with antialiasing, in
    some memory layouts), so the axes are resampled one by one, each beside an axis of two cells that stays as it is.
    """
    impulses = torch.eye(size, dtype=torch.float64)[None, :, :, None].repeat(1, 1, 1, 2)
    return interpolate(impulses, size=(count, 2), mode="bicubic", antialias=antialias)[0, :, :, 0].T


def sample_plane(table: Float[Tensor, "h w width"], pos: Float[Tensor, "#b n 2"]) -> Float[Tensor, "#b n width"]:
    """Sample a 2D position embedding table at fractional positions, by bicubic interpolation with a = -3/4.

    At the cell centres of a resampled table it equals `resize_plane` without antialiasing. Cells at the edge are
    repeated beyond the table.

    Args:
        table: a vector for each row and column.
        pos: rows and columns, counted from the centre of the first cell.
    """
    wide = torch.promote_types(table.dtype, torch.float32)
    (rows, tall), (columns, broad) = (_taps(pos[..., axis], table.shape[axis], wide) for axis in range(2))
    parts = [
        (tall[..., i] * broad[..., j])[..., None] * table[rows[..., i], columns[..., j]].to(wide)
        for i, j in product(range(4), repeat=2)
    ]
    return sum(parts[1:], parts[0]).to(table.dtype)


def _taps(
    pos: Float[Tensor, "#b n"], size: int, dtype: torch.dtype
) -> tuple[Int[Tensor, "#b n 4"], Float[Tensor, "#b n 4"]]:
    """Return the four cells around each position on one axis, and their weights by Keys' cubic kernel."""
    place, device = in_float64(pos), pos.device
    near = place.floor()[..., None] + torch.arange(-1, 3, device=place.device)
    t, a = (place[..., None] - near).abs(), -0.75
    inner, outer = ((a + 2) * t - (a + 3)) * t * t + 1, ((t - 5) * t + 8) * t * a - 4 * a
    weights = torch.where(t <= 1, inner, outer)
    return on_device(near, torch.int64, device).clamp(0, size - 1), on_device(weights, dtype, device)
