"""Attention whose queries are its keys, weighed channel against channel."""

import torch
from torch import nn

from ordinate.attention_mixer import AttentionMixer
from ordinate.projections import Variant
from ordinate.shapes import Context, Keys, Queries, Tokens, Values


class Pairwise(AttentionMixer):
    """Softmax attention with one vector for asking and being found, and a coefficient for each pair of its channels.

        y = softmax(k C k^T / sqrt(d) + bias) v W_O,   [k, v] = x W

    C has d x d numbers in each head. With C = 1 it is tied attention; a C that is not symmetric tells i's view of j
    from j's view of i. Since k C = x (W_K C), it is usual attention whose W_Q lies in the span of W_K.

    Args:
        width: columns of the model.
        heads: heads; each has d channels.
        head_width: d; None: width / heads.
        dropout: share of attention weights dropped in training.
    Source: Courtois et al. 2024, https://arxiv.org/abs/2406.06366.
    Departs: C is 1 at birth, so that training starts from tied attention; no biases in the projections.
    """

    def __init__(self, *, width: int, heads: int, head_width: int | None = None, dropout: float = 0.0) -> None:
        super().__init__(width, heads, None, dropout, Variant(head_width=head_width))
        self.project = nn.Linear(width, 2 * heads * self.head_width, bias=False)
        self.coefficients = nn.Parameter(torch.eye(self.head_width).repeat(heads, 1, 1))

    def project_heads(self, x: Tokens) -> tuple[Queries, Keys, Values]:
        """Keys and values; a query is its token's key, times the coefficients."""
        k, v = (self.split_heads(part) for part in self.project(x).chunk(2, -1))
        return k @ self.coefficients, k, v

    def ask(self, x: Tokens) -> Queries:
        """The queries alone."""
        return self.project_heads(x)[0]

    def offer(self, context: Context) -> tuple[Keys, Values]:
        """Keys and values alone."""
        return self.project_heads(context)[1:]
