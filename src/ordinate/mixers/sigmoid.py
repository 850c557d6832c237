"""Sigmoid attention: each weight is independent of the other keys."""

import math

from ordinate.attention._backend import ScoreOptions
from ordinate.core.checks import need
from ordinate.core.shapes import Visible, Weights
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._projections import AttentionMixer
from ordinate.ops.normalising import sigmoid


class Sigmoid(AttentionMixer):
    """Sigmoid attention: a sigmoid in place of the softmax, so weights are independent across keys.

        y = sigmoid(q k^T / sqrt(d) + bias - log n) v W_O,   [q, k, v] = x W,   n = keys visible to the query

    Weights need not sum to one. With -log n they initially sum to about one; without it the output would grow with
    the number of keys.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        head_width: d; None: width / heads.
        offset: constant added to every score instead of -log n; None: -log n.
        dropout: dropout probability of the attention weights.
    Source: Ramapuram et al. 2024, https://arxiv.org/abs/2409.04431.
    Departs: n is the number of keys visible to each query instead of the sequence length, so that incremental
        decoding, padding and packing do not change results. No LayerScale and no QK norm.
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
        super().__init__(width, heads, kv_heads, dropout, AttentionOptions(head_width=head_width))
        finite = offset is None or math.isfinite(offset)
        need(finite, "offset must be a finite number", f"got {offset}", "leave it out for -log n")
        self.offset = offset

    @property
    def score_options(self) -> ScoreOptions:
        """Attention formula with sigmoid weights."""
        return ScoreOptions(normaliser=self._weigh)

    def _weigh(self, scores: Weights, visible: Visible) -> Weights:
        return sigmoid(scores, visible[:, None], self.offset)
