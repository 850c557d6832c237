"""Relative position bias with a trained value for each offset (a Toeplitz matrix)."""

from typing import Literal

import torch
from torch import nn

from ordinate.core.checks import need_known, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias
from ordinate.ops.resize import resize_line
from ordinate.schemes._scheme import Scheme

OutOfRange = Literal["error", "clamp"]
ResizeMode = Literal["extend", "stretch"]


class Toeplitz(Scheme):
    """Relative position bias: add a trained bias for each head and signed offset to the scores.

        bias(h, i, j) = table[p_i - p_j + N - 1, h],        N = max_length

    The most general bias that depends on the offset alone: all others of that kind are special cases. Under a causal
    mask only the half of the table for past keys is used and trained.

    Enters at: scores.
    Args:
        heads: heads of the model.
        max_length: maximum sequence length, N; the table has 2N - 1 rows [tokens].
        out_of_range: for offsets beyond the table: `error`, or `clamp` to the largest offset of the table.
    Raises:
        ValueError: fractional positions, or, unless out_of_range is `clamp`, one beyond the table.
    Source: Shaw et al. 2018, section 3.2, https://arxiv.org/abs/1803.02155, with a table of vectors; with a number
        for each head it is the bias of T5 (Raffel et al. 2020) with a bucket for each offset.
    Departs: a number for each head instead of a vector.
    """

    integer_positions = True
    shift_invariant = True
    citation = """@inproceedings{shaw2018self,
  title = {Self-Attention with Relative Position Representations},
  author = {Shaw, Peter and Uszkoreit, Jakob and Vaswani, Ashish},
  booktitle = {Proceedings of the 2018 Conference of the North American Chapter of the Association for Computational
               Linguistics: Human Language Technologies},
  year = {2018},
  url = {https://arxiv.org/abs/1803.02155}
}"""

    def __init__(self, *, heads: int, max_length: int, out_of_range: OutOfRange = "error") -> None:
        super().__init__()
        need_positive("heads", heads)
        need_positive("max_length", max_length)
        need_known("out_of_range of toeplitz", out_of_range, ("error", "clamp"))
        self.out_of_range, self.reach = out_of_range, max_length - 1
        self.max_length = None if out_of_range == "clamp" else max_length
        self.bias_reach = self.reach
        self.table = nn.Parameter(torch.randn(2 * max_length - 1, heads) * 0.02)

    def bias(self, where: Geometry) -> Bias:
        # offsets of masked pairs, such as padding, may exceed the table
        row = where.offset[..., 0].clamp(-self.reach, self.reach) + self.reach
        table = self.table.to(torch.promote_types(self.table.dtype, torch.float32))
        return nn.functional.embedding(row, table).permute(0, 3, 1, 2)

    def resized(self, max_length: int, *, mode: ResizeMode = "extend") -> "Toeplitz":
        """Return a copy for another maximum sequence length.

        Args:
            max_length: maximum sequence length [tokens].
            mode: `extend` keeps the bias of each offset and repeats the outermost ones; `stretch` resizes the table
                by linear interpolation (position interpolation).
        """
        need_positive("max_length", max_length)
        need_known("mode of resizing toeplitz", mode, ("extend", "stretch"))
        heads = self.table.shape[1]
        grown = Toeplitz(heads=heads, max_length=max_length, out_of_range=self.out_of_range).to(self.table)
        with torch.no_grad():
            if mode == "extend":
                place = torch.arange(-grown.reach, grown.reach + 1, device=self.table.device)
                grown.table.copy_(self.table[place.clamp(-self.reach, self.reach) + self.reach])
            else:
                grown.table.copy_(resize_line(self.table, 2 * max_length - 1, "centres"))
        return grown
