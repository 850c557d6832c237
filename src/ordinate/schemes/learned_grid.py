"""Learned 2D position embeddings for image patches (Dosovitskiy et al., 2021)."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_positive
from ordinate.core.shapes import Positions, Tokens
from ordinate.core.tensors import need_true
from ordinate.ops.resize import resize_plane, sample_plane
from ordinate.schemes._scheme import Scheme


class LearnedGrid(Scheme):
    """Learned 2D position embeddings: add a trained vector for each row and column to the patch embeddings.

        x[p] += table[p_row, p_column]

    Cells that do not occur in training keep their initial vector. At fractional positions the table is interpolated
    bicubically, as in PyTorch (a = -3/4), with edge cells repeated, so an image of another size can be mapped onto
    the training grid. `resized` returns a copy with a resized table.

    Enters at: token embeddings.
    Args:
        width: model width.
        max_length: rows and columns of the table, if not given [cells].
        rows: rows of the table; None: max_length.
        columns: columns of the table; None: max_length.
        scale: standard deviation at initialisation; should match the magnitude of the token embeddings, 0.02 in ViT.
        antialias: whether the interpolation is antialiased when an image has fewer cells than the table (bicubic, a =
            -1/2; DINOv2 with registers). Fractional positions must then form a complete grid.
    Raises:
        ValueError: a position more than half a cell outside the centres of the outer cells, or with `antialias` one
            that does not belong to a complete grid.
    Source: Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, equation 1 and section 3.2,
        https://arxiv.org/abs/2010.11929.
    Departs: the table is indexed by row and column; ViT numbers the cells consecutively and restores the grid when it
        resizes the table. A class token has no cell.
    """

    axes = (2,)
    shift_invariant = False
    citation = """@inproceedings{dosovitskiy2021image,
  title = {An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale},
  author = {Dosovitskiy, Alexey and Beyer, Lucas and Kolesnikov, Alexander and Weissenborn, Dirk and Zhai, Xiaohua and
            Unterthiner, Thomas and Dehghani, Mostafa and Minderer, Matthias and Heigold, Georg and Gelly, Sylvain and
            Uszkoreit, Jakob and Houlsby, Neil},
  booktitle = {International Conference on Learning Representations},
  year = {2021},
  url = {https://arxiv.org/abs/2010.11929}
}"""

    def __init__(
        self,
        *,
        width: int,
        max_length: int,
        rows: int | None = None,
        columns: int | None = None,
        scale: float = 0.02,
        antialias: bool = False,
    ) -> None:
        super().__init__()
        rows, columns = (max_length if size is None else size for size in (rows, columns))
        for name, value in (("width", width), ("rows", rows), ("columns", columns), ("scale", scale)):
            need_positive(name, value)
        self.max_length, self.antialias = min(rows, columns), antialias
        self.table = nn.Parameter(torch.randn(rows, columns, width) * scale)

    def embed(self, x: Tokens, pos: Positions) -> Tokens:
        """Add the vector of each cell."""
        self.check_positions(pos)
        if not pos.is_floating_point():
            return x + self.table[pos[..., 0], pos[..., 1]].to(x.dtype)
        return x + (self._covered(pos) if self.antialias else sample_plane(self.table, pos)).to(x.dtype)

    def _covered(self, pos: Positions) -> Float[Tensor, "1 n width"]:
        """Return the vectors of another grid's cells, interpolated with antialiasing.

        The size of the other grid is read from the positions, which waits for a GPU.
        """
        sizes, cells = self.table.shape[:2], [pos[..., axis].unique().tolist() for axis in range(2)]
        even = [
            [(cell + 0.5) * size / len(found) - 0.5 for cell in range(len(found))]
            for size, found in zip(sizes, cells, strict=True)
        ]
        whole = torch.cartesian_prod(*(torch.tensor(axis, device=pos.device).to(pos) for axis in even))[None]
        need(
            whole.shape == pos.shape and torch.allclose(whole, pos),
            "with antialias, fractional positions must be the cell centres of a complete grid",
            f"got {pos.shape[1]} positions that are not",
            "leave antialias out",
        )
        return resize_plane(self.table, len(even[0]), len(even[1]), antialias=True).flatten(0, 1)[None]

    def check_length(self, pos: Positions) -> None:
        """Raise a ValueError unless all positions lie within the table."""
        rows, columns, _ = self.table.shape
        low, high = pos.flatten(0, 1).amin(0), pos.flatten(0, 1).amax(0)

        def came() -> str:
            (top, left), (bottom, right) = low.tolist(), high.tolist()
            return f"got rows {top} to {bottom} and columns {left} to {right}"

        need_true(
            (low >= -0.5).all() & (high[0] <= rows - 0.5) & (high[1] <= columns - 0.5),
            f"LearnedGrid has {rows} rows and {columns} columns, counted from 0",
            came,
            "resize the table: resized(rows, columns)",
        )

    def resized(self, rows: int, columns: int, *, antialias: bool = True) -> "LearnedGrid":
        """Return a copy whose table is resized by bicubic interpolation.

        The new table is a separate parameter. At the same size it is bit-identical.

        Args:
            rows: rows of the new table [cells].
            columns: columns of the new table [cells].
            antialias: interpolate with antialiasing when downsampling: timm does, ViT in transformers does not. It
                has another bicubic kernel, so upsampled tables change too.
        Raises:
            ValueError: a size of 0 or less.
        """
        need_positive("rows", rows)
        need_positive("columns", columns)
        other = copy.deepcopy(self)
        other.max_length = min(rows, columns)
        table = resize_plane(self.table.detach(), rows, columns, antialias=antialias)
        other.table = nn.Parameter(table, requires_grad=self.table.requires_grad)
        return other
