"""Attention that weighs each token by itself."""

import math

from ordinate.attention_mixer import AttentionMixer
from ordinate.checks import need
from ordinate.ops.normalising import sigmoid
from ordinate.projections import Variant
from ordinate.route import Formula
from ordinate.shapes import Visible, Weights


class Sigmoid(AttentionMixer):
    """Attention with a sigmoid in place of the softmax: a key's weight does not depend on the other keys.

        y = sigmoid(q k^T / sqrt(d) + bias - log n) v W_O,   [q, k, v] = x W,   n = tokens that the query sees

    Weights need not sum to one. The -log n makes them sum to about one at birth; without it a token of a long text
    would take as many times what it takes in a short one.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        head_width: d; None: width / heads.
        offset: what is added to every score in place of -log n; None: -log n.
        dropout: share of attention weights dropped in training.
    Source: Ramapuram et al. 2024, https://arxiv.org/abs/2409.04431.
    Departs: n is what each query sees, also where that is less than the text, so that reading in pieces, padding and
        packing change nothing. No LayerScale and no norm of queries and keys.
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        offset: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, kv_heads, dropout, Variant(head_width=head_width))
        finite = offset is None or math.isfinite(offset)
        need(finite, "offset must be a finite number", f"got {offset}", "leave it out for -log n")
        self.offset = offset

    @property
    def formula(self) -> Formula:
        """Weights by a sigmoid."""
        return Formula(weights=self._weigh)

    def _weigh(self, scores: Weights, visible: Visible) -> Weights:
        return sigmoid(scores, visible[:, None], self.offset)
