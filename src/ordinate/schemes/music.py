"""A trained vector for every distance, met by queries."""

from typing import Literal, get_args

import torch
from torch import nn

from ordinate.checks import need_known, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.relative import Rows, Vectors, look_up
from ordinate.scheme import Scheme
from ordinate.shapes import Bias, Keys, Queries

Beyond = Literal["error", "last", "zero"]


class Music(Scheme):
    """Give each head a trained vector for every distance up to the longest input, and let queries meet it.

        score(i, j) = (q_i . k_j + q_i . table[h, p_i - p_j]) / sqrt(d)

    No distance shares its vector with another, so a rhythm of any period can be learned. It is what the skewing of
    Music Transformer computes, but picks the vectors by position, so that positions may be given.

    Enters at: scores, from content too.
    Args:
        head_width: channels of a head, d.
        heads: heads of the model.
        max_length: distances with a vector, from 0 to max_length - 1 [tokens].
        beyond: what becomes of longer distances: `error` refuses positions of max_length or more, `last` gives them
            the vector of the longest distance, `zero` adds nothing (as tensor2tensor does).
        future: whether keys in the future have vectors of their own; otherwise they count as distance 0, which is
            of no account under a causal mask.
        per_head: whether each head has vectors of its own.
    Raises:
        ValueError: a size not above zero, or an unknown `beyond`; with `error`, a position beyond the table.
    Source: Huang et al. 2018, Music Transformer, section 3.4, https://arxiv.org/abs/1809.04281; born normal with a
        standard deviation of d^-0.5, as in tensor2tensor.
    Departs: nowhere.
    """

    per_layer = True
    whole = True
    shift_invariant = True
    citation = """@inproceedings{huang2019music,
  title = {Music Transformer: Generating Music with Long-Term Structure},
  author = {Huang, Cheng-Zhi Anna and Vaswani, Ashish and Uszkoreit, Jakob and Simon, Ian and Hawthorne, Curtis and
            Shazeer, Noam and Dai, Andrew M. and Hoffman, Matthew D. and Dinculescu, Monica and Eck, Douglas},
  booktitle = {International Conference on Learning Representations},
  year = {2019},
  url = {https://arxiv.org/abs/1809.04281}
}"""

    def __init__(
        self,
        *,
        head_width: int,
        heads: int,
        max_length: int,
        beyond: Beyond = "error",
        future: bool = False,
        per_head: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("head_width", head_width), ("heads", heads), ("max_length", max_length)):
            need_positive(name, value)
        need_known("way beyond the table", beyond, get_args(Beyond))
        self.head_width, self.heads = head_width, heads
        self.reach, self.beyond, self.future = max_length - 1, beyond, future
        self.max_length = max_length if beyond == "error" else None
        rows = max_length + (self.reach if future else 0)
        self.table = nn.Parameter(torch.randn(heads if per_head else 1, rows, head_width) * head_width**-0.5)

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        """What each query makes of the vector of each distance."""
        offset = self._offset(where)
        scores = look_up(q, self.table, self._rows(offset)) * self.head_width**-0.5
        if self.beyond == "zero":
            scores = scores.masked_fill((offset.abs() > self.reach)[:, None], 0.0)
        return scores

    def vectors(self, where: Geometry) -> Vectors:
        """The vectors of the distances."""
        offset = self._offset(where)
        wide = torch.promote_types(self.table.dtype, torch.float32)
        vectors = self.table.to(wide).index_select(1, self._rows(offset)[0, 0]) * self.head_width**-0.5
        if self.beyond == "zero":
            vectors = vectors.masked_fill((offset[0, 0].abs() > self.reach)[:, None], 0.0)
        return Vectors(asked=vectors, reach=self.reach + (self.beyond == "zero"))

    def _offset(self, where: Geometry) -> Rows:
        offset = where.offset[..., 0]
        return offset if self.future else offset.clamp(min=0)

    def _rows(self, offset: Rows) -> Rows:
        # from the farthest past on, as the paper has them
        return self.reach - offset.clamp(-self.reach, self.reach)
