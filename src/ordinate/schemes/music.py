"""Music Transformer: relative attention with an embedding for each distance (Huang et al., 2018)."""

from typing import Literal, get_args

import torch
from torch import nn

from ordinate.core.checks import need_known, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, Queries
from ordinate.ops.relative import RelativeVectors, RowIndex, chosen_rows, gather_products
from ordinate.schemes._scheme import Scheme

OutOfRange = Literal["error", "clamp", "zero"]


class Music(Scheme):
    """Relative attention: add the product of each query with a trained embedding of the distance to the scores.

        score(i, j) = (q_i . k_j + q_i . table[h, p_i - p_j]) / sqrt(d)

    Each distance up to the maximum length has its own embedding, so rhythms of any period can be learned. The result
    is that of Music Transformer's skewing, but embeddings are selected by position, so positions may be arbitrary.

    Enters at: scores (content-dependent).
    Args:
        head_width: channels of a head, d.
        heads: heads of the model.
        max_length: number of distances with an embedding, 0 to max_length - 1 [tokens].
        out_of_range: for longer distances: `error` rejects positions of max_length or more, `clamp` uses the
            embedding of the largest distance, `zero` adds nothing (as in tensor2tensor).
        future: whether future keys have embeddings of their own; otherwise they count as distance 0, which has no
            effect under a causal mask.
        per_head: whether each head has its own embeddings.
    Raises:
        ValueError: a size not above zero, or an unknown `out_of_range`; with `error`, a position beyond the table.
    Source: Huang et al. 2018, Music Transformer, section 3.4, https://arxiv.org/abs/1809.04281; initialised normal
        with a standard deviation of d^-0.5, as in tensor2tensor.
    Departs: nowhere.
    """

    per_layer = True
    integer_positions = True
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
        out_of_range: OutOfRange = "error",
        future: bool = False,
        per_head: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("head_width", head_width), ("heads", heads), ("max_length", max_length)):
            need_positive(name, value)
        need_known("out_of_range of music", out_of_range, get_args(OutOfRange))
        self.head_width, self.heads = head_width, heads
        self.reach, self.out_of_range, self.future = max_length - 1, out_of_range, future
        self.max_length = max_length if out_of_range == "error" else None
        rows = max_length + (self.reach if future else 0)
        self.table = nn.Parameter(torch.randn(heads if per_head else 1, rows, head_width) * head_width**-0.5)

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        offset = self._offset(where)
        scores = gather_products(q, self.table, self._rows(offset)) * self.head_width**-0.5
        if self.out_of_range == "zero":
            scores = scores.masked_fill((offset.abs() > self.reach)[:, None], 0.0)
        return scores

    def relative_vectors(self, where: Geometry) -> RelativeVectors:
        """Return the embedding of each distance, divided by sqrt(d)."""
        offset = self._offset(where)
        wide = torch.promote_types(self.table.dtype, torch.float32)
        vectors = chosen_rows(self.table.to(wide), self._rows(offset)[0, 0]) * self.head_width**-0.5
        if self.out_of_range == "zero":
            vectors = vectors.masked_fill((offset[0, 0].abs() > self.reach)[:, None], 0.0)
        return RelativeVectors(query_vectors=vectors, reach=self.reach + (self.out_of_range == "zero"))

    def _offset(self, where: Geometry) -> RowIndex:
        offset = where.offset[..., 0]
        return offset if self.future else offset.clamp(min=0)

    def _rows(self, offset: RowIndex) -> RowIndex:
        # row 0 is the most distant past key, as in the paper
        return self.reach - offset.clamp(-self.reach, self.reach)
