"""Sinkhorn attention: (nearly) doubly stochastic attention weights."""

from ordinate.attention._backend import ScoreOptions
from ordinate.attention.kv_buffer import MaxKeyNorm
from ordinate.core.checks import need
from ordinate.core.shapes import Keys, Outputs, Queries, Tokens, Values, Visible, Weights
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._mixer import KVCache
from ordinate.mixers._projections import AttentionMixer
from ordinate.ops.normalising import sinkhorn
from ordinate.schemes._scheme import Placed


class Sinkhorn(AttentionMixer):
    """Sinkhorn attention: weights normalised over keys and queries in turn, so nearly doubly stochastic.

        W = exp(q k^T / sqrt(d) + bias); rows, columns, rows ... of W are divided by their sums;   y = W v W_O

    One division, of rows, is the softmax. With more, every key receives about the same total attention.

    It has no causal form: the sum of a column includes later queries, whose information would leak to earlier ones.
    The full matrix of weights is held in memory.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        head_width: d; None: width / heads.
        divisions: number of alternating normalisations of rows and columns; odd, so that rows come last.
        dropout: dropout probability of the attention weights.
    Source: Sander et al. 2022, Sinkformers, https://arxiv.org/abs/2110.11773.
    Departs: gradients flow through all normalisations (the authors' code blocks those of columns).
    """

    causal = False
    # the sum of a column includes later queries
    supports_cross_attention = False
    supports_cache = False

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        divisions: int = 5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, kv_heads, dropout, AttentionOptions(head_width=head_width))
        odd = divisions > 0 and divisions % 2 == 1
        need(odd, "divisions must be odd, so that rows come first and last", f"got {divisions}", "give 1, 3, 5 ...")
        self.divisions = divisions

    def forward(self, x: Tokens, at: Placed, state: KVCache | None = None) -> tuple[Tokens, None]:
        """Compute attention among the tokens of `x`; there is no cache."""
        y, _ = super().forward(x, at, state)
        return y, None

    def attention(self, q: Queries, k: Keys, v: Values, at: Placed, longest: MaxKeyNorm | None = None) -> Outputs:
        """Attention output of each head, by the backend `reference`: column sums need all queries at once."""
        return self.compute_attention(q, k, v, at, ScoreOptions(normaliser=self._weigh), backend="reference")

    def _weigh(self, scores: Weights, visible: Visible) -> Weights:
        return sinkhorn(scores, visible[:, None], self.divisions)
