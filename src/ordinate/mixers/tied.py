"""Attention whose queries are its keys."""

from torch import nn

from ordinate.attention_mixer import AttentionMixer
from ordinate.projections import Variant
from ordinate.shapes import Context, Keys, Queries, Tokens, Values


class Tied(AttentionMixer):
    """Softmax attention in which a token asks with the very vector that it is found by: W_Q = W_K.

        y = softmax(k k^T / sqrt(d) + bias) v W_O,   [k, v] = x W

    What i thinks of j before the softmax is what j thinks of i. A token mostly attends to itself, since k_i k_i^T is
    large. Where all see all, no head can look at the previous token: it would look at the next as much. Causality,
    a bias that tells past from future, or coefficients (`pairwise`) bring direction back; rope does not.

    Args:
        width: columns of the model.
        heads: heads; each has d channels.
        head_width: d; None: width / heads.
        dropout: share of attention weights dropped in training.
    Source: Kitaev et al. 2020, Reformer, section 2, https://arxiv.org/abs/2001.04451 (shared-QK).
    Departs: keys are as long as they are, where Reformer's have unit length; a token sees itself like any other.
    """

    def __init__(self, *, width: int, heads: int, head_width: int | None = None, dropout: float = 0.0) -> None:
        super().__init__(width, heads, None, dropout, Variant(head_width=head_width))
        self.project = nn.Linear(width, 2 * heads * self.head_width, bias=False)

    def project_heads(self, x: Tokens) -> tuple[Queries, Keys, Values]:
        """Keys and values; the keys are the queries."""
        k, v = (self.split_heads(part) for part in self.project(x).chunk(2, -1))
        return k, k, v

    def ask(self, x: Tokens) -> Queries:
        """The queries alone."""
        return self.project_heads(x)[0]

    def offer(self, context: Context) -> tuple[Keys, Values]:
        """Keys and values alone."""
        return self.project_heads(context)[1:]
