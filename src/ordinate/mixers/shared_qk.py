"""Shared query-key attention: W_Q = W_K."""

from torch import nn

from ordinate.core.shapes import Context, Keys, Queries, Tokens, Values
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._projections import AttentionMixer


class SharedQK(AttentionMixer):
    """Softmax attention with a shared query-key projection: W_Q = W_K.

        y = softmax(k k^T / sqrt(d) + bias) v W_O,   [k, v] = x W

    Scores are symmetric: that of (i, j) equals that of (j, i). A token mostly attends to itself, since k_i k_i^T is
    large. In the bidirectional form no head can attend to the previous token without attending to the next one as
    much. A causal mask, an asymmetric bias or coefficients (`pairwise`) restore direction; rope does not.

    Args:
        width: columns of the model.
        heads: heads; each has d channels.
        head_width: d; None: width / heads.
        dropout: dropout probability of the attention weights.
    Source: Kitaev et al. 2020, Reformer, section 2, https://arxiv.org/abs/2001.04451 (shared-QK).
    Departs: keys are not normalised to unit length as in Reformer; a token attends to itself like to any other.
    """

    def __init__(self, *, width: int, heads: int, head_width: int | None = None, dropout: float = 0.0) -> None:
        super().__init__(width, heads, None, dropout, AttentionOptions(head_width=head_width))
        self.project = nn.Linear(width, 2 * heads * self.head_width, bias=False)

    def project_qkv(self, x: Tokens) -> tuple[Queries, Keys, Values]:
        """Keys and values; the queries are the keys."""
        k, v = (self.split_heads(part) for part in self.project(x).chunk(2, -1))
        return k, k, v

    def project_queries(self, x: Tokens) -> Queries:
        """Queries for cross-attention."""
        return self.project_qkv(x)[0]

    def project_keys_values(self, context: Context) -> tuple[Keys, Values]:
        """Keys and values for cross-attention."""
        return self.project_qkv(context)[1:]
