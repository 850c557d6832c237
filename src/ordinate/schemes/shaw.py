"""Relative position representations for keys and values (Shaw et al., 2018)."""

import copy

import torch
from torch import nn

from ordinate.core.checks import need, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, Outputs, Queries, Weights
from ordinate.ops.relative import RelativeVectors, RowIndex, chosen_rows, gather_products, scatter_weighted_sum
from ordinate.schemes._scheme import Scheme


class Shaw(Scheme):
    """Relative position representations: trained vectors of the clipped offset, added to keys and values.

    Offsets beyond the clipping distance share a vector, so any length is supported.

        score(i, j) = q_i . (k_j + keys[r]) / sqrt(d)
        out_i = sum_j weight(i, j) (v_j + values[r]),     r = clip(p_i - p_j, -future, past)

    Enters at: scores (content-dependent) and attention output.
    Args:
        head_width: channels of a head, d.
        heads: heads of the model; needed with `per_head` only.
        past: clipping distance for past keys [tokens].
        future: clipping distance for future keys [tokens].
        per_head: whether each head has its own vectors.
        values: whether vectors are added to the values too.
    Raises:
        ValueError: a negative clipping distance, a head width not above zero, or `per_head` without heads.
    Source: Shaw et al. 2018, Self-Attention with Relative Position Representations, equations 3 to 5,
        https://arxiv.org/abs/1803.02155.
    Departs: the paper does not give the initialisation; here it is normal with a standard deviation of d^-0.5. The
        smaller model of the paper has vectors for each head (`per_head`), the larger one does not.
    """

    per_layer = True
    integer_positions = True
    shift_invariant = True
    citation = """@inproceedings{shaw2018self,
  title = {Self-Attention with Relative Position Representations},
  author = {Shaw, Peter and Uszkoreit, Jakob and Vaswani, Ashish},
  booktitle = {Proceedings of the 2018 Conference of the North American Chapter of the Association for
               Computational Linguistics: Human Language Technologies, Volume 2 (Short Papers)},
  pages = {464--468},
  year = {2018},
  doi = {10.18653/v1/N18-2074},
  url = {https://arxiv.org/abs/1803.02155}
}"""

    def __init__(
        self,
        *,
        head_width: int,
        heads: int | None = None,
        past: int = 16,
        future: int = 16,
        per_head: bool = False,
        values: bool = True,
    ) -> None:
        super().__init__()
        need_positive("head_width", head_width)
        _check_reach(past, future)
        need(
            not per_head or (heads is not None and heads > 0),
            "per_head=True needs the number of heads",
            f"got heads={heads}",
            "give heads, or per_head=False",
        )
        need_positive("heads", 1 if heads is None else heads)
        self.head_width, self.past, self.future, self.per_head = head_width, past, future, per_head
        shape = (heads if per_head and heads else 1, past + 1 + future, head_width)
        self.keys = nn.Parameter(torch.randn(shape) * head_width**-0.5)
        self.values = nn.Parameter(torch.randn(shape) * head_width**-0.5) if values else None

    @property
    def hooks(self) -> tuple[str, ...]:
        """Hooks in use: `value_bias` only with vectors for the values."""
        return ("content_bias",) if self.values is None else ("content_bias", "value_bias")

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        return gather_products(q, self.keys, self._rows(where)) * self.head_width**-0.5

    def value_bias(self, weights: Weights, where: Geometry) -> Outputs | None:
        return None if self.values is None else scatter_weighted_sum(weights, self.values, self._rows(where))

    def relative_vectors(self, where: Geometry) -> RelativeVectors:
        """Return the key and value vectors of each offset."""
        rows, wide = self._rows(where)[0, 0], torch.promote_types(self.keys.dtype, torch.float32)
        keys, values = (None if x is None else chosen_rows(x.to(wide), rows) for x in (self.keys, self.values))
        return RelativeVectors(
            query_vectors=keys * self.head_width**-0.5, value_vectors=values, reach=max(self.past, self.future)
        )

    def resized(self, *, past: int, future: int) -> "Shaw":
        """Return a copy with other clipping distances; new offsets are initialised with the vectors at the old ends.

        Larger distances change no result before further training; smaller ones drop the vectors beyond them.
        """
        _check_reach(past, future)
        other = copy.deepcopy(self)
        other.past, other.future = past, future
        rows = self.past - torch.arange(past, -future - 1, -1).clamp(-self.future, self.past)
        other.keys = nn.Parameter(self.keys.detach()[:, rows])
        if self.values is not None:
            other.values = nn.Parameter(self.values.detach()[:, rows])
        return other

    def _rows(self, where: Geometry) -> RowIndex:
        # rows run from the most distant past to the most distant future, as in published checkpoints
        return self.past - where.offset[..., 0].clamp(-self.future, self.past)


def _check_reach(past: int, future: int) -> None:
    for name, reach in (("past", past), ("future", future)):
        need(reach >= 0, f"{name} must not be negative", f"got {reach}", "give 0 or more tokens")
