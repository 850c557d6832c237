"""Attention of a block of queries with an arbitrary additive bias, head by head; forward and backward."""

import itertools
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, Outputs, Queries, Values, Weights
from ordinate.ops.matmul import matmul_partial_sums, matmul_transposed
from ordinate.ops.offset_bias_attention import masked_table


class AttentionRows(NamedTuple):
    """A block of queries and the keys that they may attend to; all tensors in one dtype.

    Args:
        q: queries.
        k: keys.
        v: values.
        scale: multiplies q.k; None: `added` is the whole score.
        bias: bias added to the scores.
        mask: mask; None: no pair is masked.
        dtype: dtype to which results are rounded.
    """

    q: Queries
    k: Keys
    v: Values
    scale: float | None
    bias: Bias | None
    mask: "AdditiveMask | None"
    dtype: torch.dtype

    def weights(self, row: int, head: int) -> Float[Tensor, "i j"]:
        """Attention weights of one head of one sequence; 0 for fully masked queries."""
        scores = self._scores(row, head)
        weights = torch.softmax(scores, -1, out=scores)
        if bool(weights[:, 0].isnan().any()):
            # either a bias of -inf masks all keys of a query: weights 0; or a score overflowed: the NaN is kept
            nothing = self._scores(row, head).amax(-1, keepdim=True) == float("-inf")
            weights.masked_fill_(nothing, 0.0)
        return weights if self.mask is None else self.mask.zero_empty_rows(weights, row)

    def _scores(self, row: int, head: int) -> Float[Tensor, "i j"]:
        added = None if self.bias is None else _of(self.bias, row, head)
        if self.scale is None and added is not None:
            scores = added.clone()
        else:
            scores = matmul_transposed(self.q[row, head] * (self.scale or 0.0), self.k[row, self._group(head)])
            scores = scores if added is None else scores.add_(added)
        if self.mask is not None:
            self.mask.apply_to_scores(scores, row)
        return scores

    def all_weights(self) -> Weights:
        """Attention weights of all heads."""
        made = self.q.new_empty(*self.q.shape[:3], self.k.shape[2])
        for row, head in itertools.product(*map(range, self.q.shape[:2])):
            made[row, head] = self.weights(row, head)
        return made

    def weighted_values(self, weights: Weights | None) -> Outputs:
        """Return weights times values; the weights are computed here if they are not given."""
        out = self.q.new_empty(*self.q.shape[:3], self.v.shape[3])
        for row, head in itertools.product(*map(range, self.q.shape[:2])):
            own = self.weights(row, head) if weights is None else weights[row, head]
            out[row, head] = matmul_partial_sums(own, self.v[row, self._group(head)], self.dtype)
        return out

    def backward(
        self, upstream: Outputs, to_weights: Weights | None, to_k: Tensor, to_v: Tensor
    ) -> tuple[Queries, Bias | None]:
        """Return the gradients of the queries and of the bias, the latter summed to the shape of the bias.

        Args:
            upstream: gradient of the output.
            to_weights: gradient of the weights from elsewhere, added.
            to_k: accumulates the gradient of the keys, transposed, since products of that form are faster.
            to_v: accumulates the gradient of the values, likewise.
        """
        to_q = torch.zeros_like(self.q)
        shared = self.bias is not None and self.bias.shape[:2] != self.q.shape[:2]
        # contiguous, which products require; empty_like would copy the strides of an expanded bias
        to_added = None if self.bias is None else self.q.new_empty(self.bias.shape)
        if shared and to_added is not None:
            to_added.zero_()
        for row, head in itertools.product(*map(range, self.q.shape[:2])):
            group = self._group(head)
            weights, up = self.weights(row, head), upstream[row, head]
            to_v[row, group] += matmul_partial_sums(up.t().contiguous(), weights, self.dtype)
            slope = matmul_transposed(up, self.v[row, group])
            slope = slope if to_weights is None else slope.add_(to_weights[row, head])
            alone = slope if shared or to_added is None else to_added[row, head]
            slope = torch.ops.aten._softmax_backward_data.out(slope, weights, -1, slope.dtype, grad_input=alone)
            if self.scale is not None:
                to_q[row, head] = matmul_partial_sums(slope, self.k[row, group], self.dtype).mul_(self.scale)
                asked = (self.q[row, head] * self.scale).t().contiguous()
                to_k[row, group] += matmul_partial_sums(asked, slope, self.dtype)
            if shared and to_added is not None:
                _of(to_added, row, head).add_(slope)
        return to_q, to_added

    def _group(self, head: int) -> int:
        """Key head of a query head (grouped-query attention)."""
        return head * self.k.shape[1] // self.q.shape[1]


class AdditiveMask(NamedTuple):
    """Additive mask of a block of queries and its keys.

    Args:
        low: added to scores: -inf where a pair is masked; 0 in the whole row of a fully masked query.
        begin: first key that it covers; earlier keys are visible to all queries.
        empty: fully masked queries; None: there are none.
    """

    low: Float[Tensor, "#b i hidden"]
    begin: int
    empty: Bool[Tensor, "#b i"] | None

    def apply_to_scores(self, scores: Float[Tensor, "i j"], row: int) -> None:
        """Add the mask to the scores of one sequence, in place."""
        scores[:, self.begin :].add_(self.low[min(row, len(self.low) - 1)])

    def zero_empty_rows(self, weights: Float[Tensor, "i j"], row: int) -> Float[Tensor, "i j"]:
        """Set the weights of fully masked queries to 0, in place."""
        return (
            weights
            if self.empty is None
            else weights.masked_fill_(self.empty[min(row, len(self.empty) - 1)][:, None], 0.0)
        )


def additive_mask(where: Geometry, type: torch.dtype) -> AdditiveMask | None:
    """Return the mask of a geometry; None if no pair is masked."""
    if where.is_unmasked:
        return None
    simple = where.window is None and where.q_document is None
    begin = min(where.start + 1, where.shape[1]) if simple else 0
    after = where.block(slice(None), slice(begin, None))
    table = masked_table(None, after, 1, type)[0]
    # with rows in reverse order, a table of offsets viewed with strides (1, 1) is the whole mask
    low = table.as_strided(after.shape, (1, 1)).flip(0)[None]
    if simple:
        return AdditiveMask(low, begin, None)
    low = low if where.q_document is None else low.masked_fill(~where.visible, float("-inf"))
    empty = low.amax(-1) == float("-inf")
    return (
        AdditiveMask(low.masked_fill(empty[..., None], 0.0), begin, empty)
        if bool(empty.any())
        else AdditiveMask(low, begin, None)
    )


def to_float32(x: Tensor) -> Tensor:
    """Convert to float32 or wider, contiguous."""
    return x.to(torch.promote_types(x.dtype, torch.float32)).contiguous()


def _of(x: Bias, row: int, head: int) -> Float[Tensor, "i j"]:
    return x[min(row, x.shape[0] - 1), min(head, x.shape[1] - 1)]
