"""Attention with the output projection written as V W^T / sqrt(d), in symmetry with Q K^T / sqrt(d)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need_number, need_positive_counts
from ordinate.core.shapes import Tokens
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._projections import AttentionMixer


class SymmetricValues(AttentionMixer):
    """Softmax attention with an output projection V W^T / sqrt(d) per head, in symmetry with Q K^T / sqrt(d).

        y = sum over heads of softmax(q k^T / sqrt(d) + bias) v W^T / sqrt(d)

    W has a row for each column of the model and a column for each channel of the head. It is equivalent to standard
    attention: sum over heads of A_h V_h W_h^T / sqrt(d) = concatenation of A_h V_h times W_O, where W_O stacks the
    W_h^T / sqrt(d).

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        head_width: d; None: width / heads.
        layers: number of layers of the model, which the initial scale of W depends on.
        scale: standard deviation of the model's initial weights. W is drawn sqrt(d) times as large as a model draws
            W_O, which compensates the division.
        dropout: dropout probability of the attention weights.
    Source: `AttentionAlt` of https://stats.stackexchange.com/q/541049.
    Departs: W is a parameter of each head. Computed from the tokens, as queries and keys are, it would give a number
        for each pair of tokens instead of a vector for each token.
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        layers: int = 1,
        scale: float = 0.02,
        dropout: float = 0.0,
    ) -> None:
        need_number("scale", scale)
        need_positive_counts(layers=layers)
        super().__init__(width, heads, kv_heads, dropout, AttentionOptions(head_width=head_width))
        self.out = _OutputProjection(width, heads, self.head_width, scale * (self.head_width / (2 * layers)) ** 0.5)


class _OutputProjection(nn.Module):
    """Multiply by W^T / sqrt(d), for all heads in one matrix product."""

    def __init__(self, width: int, heads: int, head_width: int, scale: float) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(heads, width, head_width) * scale)

    def forward(self, y: Float[Tensor, "b n channels"]) -> Tokens:
        return nn.functional.linear(y, self.matrix.transpose(0, 1).flatten(1) * self.matrix.shape[2] ** -0.5)
