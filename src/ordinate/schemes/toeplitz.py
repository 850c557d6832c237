"""A trained number for each distance."""

from typing import Literal

import torch
from torch import nn

from ordinate.checks import need_known, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.resize import resize_line
from ordinate.scheme import Scheme
from ordinate.shapes import Bias

Far = Literal["error", "clamp"]
Way = Literal["extend", "stretch"]


class Toeplitz(Scheme):
    """Add to each score a trained number, one for each head and each distance, ahead and behind.

        bias(h, i, j) = table[p_i - p_j + N - 1, h],        N = max_length

    It is the freest bias that looks at distance alone: all others of that kind are special cases. Under a causal mask
    only the half of the table that looks back is used and trained.

    Enters at: scores.
    Args:
        heads: heads of the model.
        max_length: longest text, N; the table has 2N - 1 rows [tokens].
        far: what longer texts meet: an `error`, or, by `clamp`, the number of the farthest distance in the table.
    Raises:
        ValueError: fractional positions, or, unless far is `clamp`, one beyond the table.
    Source: Shaw et al. 2018, section 3.2, https://arxiv.org/abs/1803.02155, has the table of distances, of vectors
        there; as a number for each head it is T5's bias (Raffel et al. 2020) with a bucket for each distance.
    Departs: a number for each head in place of Shaw's vector.
    """

    whole = True
    shift_invariant = True
    citation = """@inproceedings{shaw2018self,
  title = {Self-Attention with Relative Position Representations},
  author = {Shaw, Peter and Uszkoreit, Jakob and Vaswani, Ashish},
  booktitle = {Proceedings of the 2018 Conference of the North American Chapter of the Association for Computational
               Linguistics: Human Language Technologies},
  year = {2018},
  url = {https://arxiv.org/abs/1803.02155}
}"""

    def __init__(self, *, heads: int, max_length: int, far: Far = "error") -> None:
        super().__init__()
        need_positive("heads", heads)
        need_positive("max_length", max_length)
        need_known("way of toeplitz with far keys", far, ("error", "clamp"))
        self.far, self.reach = far, max_length - 1
        self.max_length = None if far == "clamp" else max_length
        self.table = nn.Parameter(torch.randn(2 * max_length - 1, heads) * 0.02)

    def bias(self, where: Geometry) -> Bias:
        """The number for each head, query and key."""
        # pairs that are hidden, as by padding, may lie farther apart than the table reaches
        row = where.offset[..., 0].clamp(-self.reach, self.reach) + self.reach
        table = self.table.to(torch.promote_types(self.table.dtype, torch.float32))
        return nn.functional.embedding(row, table).permute(0, 3, 1, 2)

    def resized(self, max_length: int, *, way: Way = "extend") -> "Toeplitz":
        """The same for longer or shorter texts.

        Args:
            max_length: longest text [tokens].
            way: `extend` keeps the number of each distance and repeats the farthest beyond; `stretch` spreads the
                table over the new length, between its numbers linearly, as if tokens had become smaller.
        """
        need_positive("max_length", max_length)
        need_known("way of toeplitz to grow", way, ("extend", "stretch"))
        heads = self.table.shape[1]
        grown = Toeplitz(heads=heads, max_length=max_length, far=self.far).to(self.table)
        with torch.no_grad():
            if way == "extend":
                place = torch.arange(-grown.reach, grown.reach + 1, device=self.table.device)
                grown.table.copy_(self.table[place.clamp(-self.reach, self.reach) + self.reach])
            else:
                grown.table.copy_(resize_line(self.table, 2 * max_length - 1, "centres"))
        return grown
