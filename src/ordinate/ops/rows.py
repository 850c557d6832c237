"""Attention of some queries, head by head, with anything added to the scores; forward and backward."""

import itertools
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.ops.product import long_product, times_transposed
from ordinate.ops.tiles import masked_table
from ordinate.shapes import Bias, Keys, Outputs, Queries, Values, Weights


class Rows(NamedTuple):
    """Some queries, and the keys that any of them may see; all in one type.

    Args:
        q: queries.
        k: keys.
        v: values.
        scale: multiplies q.k; None: what is added is all of the score.
        added: to the scores.
        hidden: what hides pairs; None: all see all.
        kept: the type that results are rounded to.
    """

    q: Queries
    k: Keys
    v: Values
    scale: float | None
    added: Bias | None
    hidden: "Hidden | None"
    kept: torch.dtype

    def weights(self, row: int, head: int) -> Float[Tensor, "i j"]:
        """The weights of one head of one row of the batch; 0 where a query sees nothing."""
        scores = self._scores(row, head)
        weights = torch.softmax(scores, -1, out=scores)
        if bool(weights[:, 0].isnan().any()):
            # a bias of -inf left nothing to a query, or a score is too large for a number: that stays none
            nothing = self._scores(row, head).amax(-1, keepdim=True) == float("-inf")
            weights.masked_fill_(nothing, 0.0)
        return weights if self.hidden is None else self.hidden.blind(weights, row)

    def _scores(self, row: int, head: int) -> Float[Tensor, "i j"]:
        added = None if self.added is None else _of(self.added, row, head)
        if self.scale is None and added is not None:
            scores = added.clone()
        else:
            scores = times_transposed(self.q[row, head] * (self.scale or 0.0), self.k[row, self._group(head)])
            scores = scores if added is None else scores.add_(added)
        if self.hidden is not None:
            self.hidden.hide(scores, row)
        return scores

    def all_weights(self) -> Weights:
        """The weights of all heads."""
        made = self.q.new_empty(*self.q.shape[:3], self.k.shape[2])
        for row, head in itertools.product(*map(range, self.q.shape[:2])):
            made[row, head] = self.weights(row, head)
        return made

    def mixed(self, weights: Weights | None) -> Outputs:
        """The weighted values; with these weights, or its own."""
        out = self.q.new_empty(*self.q.shape[:3], self.v.shape[3])
        for row, head in itertools.product(*map(range, self.q.shape[:2])):
            own = self.weights(row, head) if weights is None else weights[row, head]
            out[row, head] = long_product(own, self.v[row, self._group(head)], self.kept)
        return out

    def backward(
        self, upstream: Outputs, to_weights: Weights | None, to_k: Tensor, to_v: Tensor
    ) -> tuple[Queries, Bias | None]:
        """The gradients of the queries and of what is added, as far as its own sum goes.

        Args:
            upstream: the gradient of the output.
            to_weights: what else the weights are given.
            to_k: takes the gradient of the keys, transposed, since products of that form are faster.
            to_v: likewise of the values.
        """
        to_q = torch.zeros_like(self.q)
        shared = self.added is not None and self.added.shape[:2] != self.q.shape[:2]
        # in order in memory, unlike some that are added: products ask for it
        to_added = None if self.added is None else self.q.new_empty(self.added.shape)
        if shared and to_added is not None:
            to_added.zero_()
        for row, head in itertools.product(*map(range, self.q.shape[:2])):
            group = self._group(head)
            weights, up = self.weights(row, head), upstream[row, head]
            to_v[row, group] += long_product(up.t().contiguous(), weights, self.kept)
            slope = times_transposed(up, self.v[row, group])
            slope = slope if to_weights is None else slope.add_(to_weights[row, head])
            alone = slope if shared or to_added is None else to_added[row, head]
            slope = torch.ops.aten._softmax_backward_data.out(slope, weights, -1, slope.dtype, grad_input=alone)
            if self.scale is not None:
                to_q[row, head] = long_product(slope, self.k[row, group], self.kept).mul_(self.scale)
                asked = (self.q[row, head] * self.scale).t().contiguous()
                to_k[row, group] += long_product(asked, slope, self.kept)
            if shared and to_added is not None:
                _of(to_added, row, head).add_(slope)
        return to_q, to_added

    def _group(self, head: int) -> int:
        """The key head that a head reads."""
        return head * self.k.shape[1] // self.q.shape[1]


class Hidden(NamedTuple):
    """Which pairs of some queries and keys are hidden.

    Args:
        low: what is added to scores: -inf where a pair is hidden; 0 in all of a row that sees nothing.
        begin: the first key that it is about; those before are seen by all.
        empty: queries that see nothing; None: there are none.
    """

    low: Float[Tensor, "#b i hidden"]
    begin: int
    empty: Bool[Tensor, "#b i"] | None

    def hide(self, scores: Float[Tensor, "i j"], row: int) -> None:
        """Add it to the scores of a row of the batch."""
        scores[:, self.begin :].add_(self.low[min(row, len(self.low) - 1)])

    def blind(self, weights: Float[Tensor, "i j"], row: int) -> Float[Tensor, "i j"]:
        """The weights, 0 for queries that see nothing."""
        return (
            weights
            if self.empty is None
            else weights.masked_fill_(self.empty[min(row, len(self.empty) - 1)][:, None], 0.0)
        )


def hidden_pairs(where: Geometry, type: torch.dtype) -> Hidden | None:
    """Which pairs of a geometry are hidden; None: all see all."""
    if where.sees_all:
        return None
    simple = where.window is None and where.q_document is None
    begin = min(where.start + 1, where.shape[1]) if simple else 0
    after = where.block(slice(None), slice(begin, None))
    table = masked_table(None, after, 1, type)[0]
    # rows in reverse are a view of what belongs to distances
    low = table.as_strided(after.shape, (1, 1)).flip(0)[None]
    if simple:
        return Hidden(low, begin, None)
    low = low if where.q_document is None else low.masked_fill(~where.visible, float("-inf"))
    empty = low.amax(-1) == float("-inf")
    return (
        Hidden(low.masked_fill(empty[..., None], 0.0), begin, empty)
        if bool(empty.any())
        else Hidden(low, begin, None)
    )


def wide(x: Tensor) -> Tensor:
    """In float32 at least, in order in memory."""
    return x.to(torch.promote_types(x.dtype, torch.float32)).contiguous()


def _of(x: Bias, row: int, head: int) -> Float[Tensor, "i j"]:
    return x[min(row, x.shape[0] - 1), min(head, x.shape[1] - 1)]
