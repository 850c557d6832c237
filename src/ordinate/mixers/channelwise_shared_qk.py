"""Shared query-key attention with a learned coefficient for each pair of channels."""

import torch
from torch import nn

from ordinate.core.shapes import Context, Keys, Queries, Tokens, Values
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._projections import AttentionMixer


class ChannelwiseSharedQK(AttentionMixer):
    """Softmax attention with a shared query-key projection and a learned bilinear form C in each head.

        y = softmax(k C k^T / sqrt(d) + bias) v W_O,   [k, v] = x W

    C is a d x d matrix in each head. C = 1 gives shared-QK attention (`tied`); an asymmetric C makes the score of (i,
    j) differ from that of (j, i). Since k C = x (W_K C), it is standard attention whose W_Q lies in the span of W_K.

    Args:
        width: columns of the model.
        heads: heads; each has d channels.
        head_width: d; None: width / heads.
        dropout: dropout probability of the attention weights.
    Source: Courtois et al. 2024, https://arxiv.org/abs/2406.06366.
    Departs: C is initialised with the identity, so that training starts from shared-QK attention; no biases in the
        projections.
    """

    def __init__(self, *, width: int, heads: int, head_width: int | None = None, dropout: float = 0.0) -> None:
        super().__init__(width, heads, None, dropout, AttentionOptions(head_width=head_width))
        self.project = nn.Linear(width, 2 * heads * self.head_width, bias=False)
        self.coefficients = nn.Parameter(torch.eye(self.head_width).repeat(heads, 1, 1))

    def project_qkv(self, x: Tokens) -> tuple[Queries, Keys, Values]:
        """Keys and values; queries are the keys times C."""
        k, v = (self.split_heads(part) for part in self.project(x).chunk(2, -1))
        return k @ self.coefficients, k, v

    def project_queries(self, x: Tokens) -> Queries:
        """Queries for cross-attention."""
        return self.project_qkv(x)[0]

    def project_keys_values(self, context: Context) -> tuple[Keys, Values]:
        """Keys and values for cross-attention."""
        return self.project_qkv(context)[1:]
