"""Attention in which every token gives as much as it takes."""

from ordinate.attention_mixer import AttentionMixer
from ordinate.checks import need
from ordinate.mixer import KeyValues
from ordinate.ops.normalising import sinkhorn
from ordinate.projections import Variant
from ordinate.room import Longest
from ordinate.route import Formula
from ordinate.scheme import Placed
from ordinate.shapes import Keys, Outputs, Queries, Tokens, Values, Visible, Weights


class Sinkhorn(AttentionMixer):
    """Attention whose weights sum to one for each query, as in the softmax, and nearly for each key too.

        W = exp(q k^T / sqrt(d) + bias); rows, columns, rows ... of W are divided by their sums;   y = W v W_O

    One division, of rows, is the softmax. With more, no token can draw all others' attention, and none is left out.

    It has no causal form: the sum of a column goes over the queries after a token too, and would tell it of them.
    All weights of all pairs are held.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        head_width: d; None: width / heads.
        divisions: how often rows and columns are divided by their sums, in turns; odd, so that rows come last.
        dropout: share of attention weights dropped in training.
    Source: Sander et al. 2022, Sinkformers, https://arxiv.org/abs/2110.11773.
    Departs: gradients flow through all divisions (the authors' code lets none through those of columns).
    """

    causal = False
    # a column's sum would tell a query of those after it
    crosses = False
    streams = False

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
        super().__init__(width, heads, kv_heads, dropout, Variant(head_width=head_width))
        odd = divisions > 0 and divisions % 2 == 1
        need(odd, "divisions begin and end with rows", f"got {divisions}", "give an odd number, 1 or more")
        self.divisions = divisions

    def forward(self, x: Tokens, at: Placed, state: KeyValues | None = None) -> tuple[Tokens, None]:
        """Attend among the tokens of `x`."""
        y, _ = super().forward(x, at, state)
        return y, None

    def attended(self, q: Queries, k: Keys, v: Values, at: Placed, longest: Longest | None = None) -> Outputs:
        """What each head reads; columns need all queries at once, which the route `reference` has."""
        return self.compute(q, k, v, at, Formula(weights=self._weigh), route="reference")

    def _weigh(self, scores: Weights, visible: Visible) -> Weights:
        return sinkhorn(scores, visible[:, None], self.divisions)
