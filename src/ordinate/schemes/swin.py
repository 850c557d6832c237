"""2D relative position bias of Swin Transformer (Liu et al., 2021)."""

import torch
from torch import nn

from ordinate.core.checks import need, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Positions
from ordinate.core.tensors import need_true
from ordinate.ops.resize import resize_plane
from ordinate.schemes._scheme import Scheme


class Swin(Scheme):
    """2D relative position bias: add a trained bias for each row and column offset between image patches.

        bias(h, i, j) = table[(r_i - r_j + R - 1) * (2C - 1) + c_i - c_j + C - 1, h]

    R and C are the rows and columns of the largest grid; each signed offset has its own bias.

    Enters at: scores.
    Args:
        heads: heads of the model.
        max_length: rows and columns, if not given separately [patches].
        rows: R [patches].
        columns: C [patches].
    Raises:
        ValueError: no size, one that is not positive, fractional positions, or one beyond the grid.
    Source: Liu et al. 2021, Swin Transformer, section 3.2, https://arxiv.org/abs/2103.14030; order of the table, its
        initialisation and its resizing from the published code.
    Departs: initial values are drawn from a normal distribution, in the published code from one truncated at 2, a
        hundred standard deviations.
    """

    axes = (2,)
    integer_positions = True
    shift_invariant = True
    citation = """@inproceedings{liu2021swin,
  title = {Swin Transformer: Hierarchical Vision Transformer using Shifted Windows},
  author = {Liu, Ze and Lin, Yutong and Cao, Yue and Hu, Han and Wei, Yixuan and Zhang, Zheng and Lin, Stephen and
            Guo, Baining},
  booktitle = {Proceedings of the IEEE/CVF International Conference on Computer Vision},
  year = {2021},
  url = {https://arxiv.org/abs/2103.14030}
}"""

    def __init__(
        self, *, heads: int, max_length: int | None = None, rows: int | None = None, columns: int | None = None
    ) -> None:
        super().__init__()
        need_positive("heads", heads)
        sizes = [max_length if size is None else size for size in (rows, columns)]
        named = None not in sizes
        came = f"got {sizes[0]} and {sizes[1]}"
        need(named, "swin needs rows and columns", came, "give both, or max_length")
        self.rows, self.columns = (size for size in sizes if size is not None)
        need_positive("rows", self.rows)
        need_positive("columns", self.columns)
        self.max_length = max(self.rows, self.columns)
        self.table = nn.Parameter(torch.randn((2 * self.rows - 1) * (2 * self.columns - 1), heads) * 0.02)

    def check_positions(self, pos: Positions) -> None:
        """Raise a ValueError unless rows and columns lie within the grid."""
        super().check_positions(pos)
        if pos.numel():
            for axis, (name, size) in enumerate((("rows", self.rows), ("columns", self.columns))):
                high = pos[..., axis].max()
                need_true(
                    high < size,
                    f"swin supports {name} 0 to {size - 1} ({name} {size})",
                    lambda high=high: f"got {int(high)}",
                    lambda name=name, high=high: f"build it with {name}={int(high) + 1} or more, or resize it",
                )

    def bias(self, where: Geometry) -> Bias:
        for pos in (where.q_pos, where.k_pos):
            self.check_positions(pos)
        down, right = where.offset.unbind(-1)
        row = (down + self.rows - 1) * (2 * self.columns - 1) + right + self.columns - 1
        table = self.table.to(torch.promote_types(self.table.dtype, torch.float32))
        return nn.functional.embedding(row, table).permute(0, 3, 1, 2)

    def resized(self, rows: int, columns: int) -> "Swin":
        """Return a copy for a grid of another size, with the table resized by bicubic interpolation."""
        heads = self.table.shape[1]
        grown = Swin(heads=heads, rows=rows, columns=columns).to(self.table)
        plane = self.table.detach().reshape(2 * self.rows - 1, 2 * self.columns - 1, heads)
        with torch.no_grad():
            grown.table.copy_(resize_plane(plane, 2 * rows - 1, 2 * columns - 1, antialias=False).flatten(0, 1))
        return grown
