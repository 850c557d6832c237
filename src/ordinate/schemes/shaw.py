"""Trained vectors for near distances, met by queries and carried to the output."""

import copy

import torch
from torch import nn

from ordinate.checks import need, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.relative import Rows, Vectors, gather_up, look_up
from ordinate.scheme import Scheme
from ordinate.shapes import Bias, Keys, Outputs, Queries, Weights


class Shaw(Scheme):
    """Give each distance a trained vector that is added to the keys, and another that is added to the values.

    Distances beyond a reach share the vector at the end of it, so any length is served.

        score(i, j) = q_i . (k_j + keys[r]) / sqrt(d)
        out_i = sum_j weight(i, j) (v_j + values[r]),     r = clip(p_i - p_j, -future, past)

    Enters at: scores, from content too, and outputs.
    Args:
        head_width: channels of a head, d.
        heads: heads of the model; needed with `per_head` only.
        past: from here on all keys in the past share a vector [tokens].
        future: the same for keys in the future [tokens].
        per_head: whether each head has vectors of its own.
        values: whether the outputs carry vectors too.
    Raises:
        ValueError: a reach below zero, a head width not above zero, or `per_head` without heads.
    Source: Shaw et al. 2018, Self-Attention with Relative Position Representations, equations 3 to 5,
        https://arxiv.org/abs/1803.02155.
    Departs: the paper does not say how the vectors are born; here their channels are normal with a standard deviation
        of d^-0.5. The paper's smaller model has vectors for each head, as `per_head` does, its larger one has not.
    """

    per_layer = True
    whole = True
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
            "vectors of each head's own need the number of heads",
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
        """Without vectors for the values it has nothing to carry."""
        return ("content_bias",) if self.values is None else ("content_bias", "carry")

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        """What each query makes of the vector of each distance."""
        return look_up(q, self.keys, self._rows(where)) * self.head_width**-0.5

    def carry(self, weights: Weights, where: Geometry) -> Outputs | None:
        """The vectors of the distances that were looked at."""
        return None if self.values is None else gather_up(weights, self.values, self._rows(where))

    def vectors(self, where: Geometry) -> Vectors:
        """The vectors of the offsets."""
        rows, wide = self._rows(where)[0, 0], torch.promote_types(self.keys.dtype, torch.float32)
        keys, values = (None if x is None else x.to(wide).index_select(1, rows) for x in (self.keys, self.values))
        return Vectors(asked=keys * self.head_width**-0.5, carried=values, reach=max(self.past, self.future))

    def resized(self, *, past: int, future: int) -> "Shaw":
        """The same scheme with another reach: distances beyond the old one begin with the vectors at its ends.

        A longer reach changes no result until it is trained; a shorter one drops the vectors beyond it.
        """
        _check_reach(past, future)
        other = copy.deepcopy(self)
        other.past, other.future = past, future
        rows = self.past - torch.arange(past, -future - 1, -1).clamp(-self.future, self.past)
        other.keys = nn.Parameter(self.keys.detach()[:, rows])
        if self.values is not None:
            other.values = nn.Parameter(self.values.detach()[:, rows])
        return other

    def _rows(self, where: Geometry) -> Rows:
        # from the farthest past to the farthest future, as published checkpoints have them
        return self.past - where.offset[..., 0].clamp(-self.future, self.past)


def _check_reach(past: int, future: int) -> None:
    for name, reach in (("past", past), ("future", future)):
        need(reach >= 0, f"{name} must not be below zero", f"got {reach}", "give 0 or more tokens")
