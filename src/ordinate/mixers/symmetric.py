"""Attention in which values are read by a matrix as queries read keys."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.attention_mixer import AttentionMixer
from ordinate.projections import Variant
from ordinate.shapes import Tokens


class Symmetric(AttentionMixer):
    """Softmax attention written so that what follows the softmax looks like what stands inside: V W^T beside Q K^T.

        y = sum over heads of softmax(q k^T / sqrt(d) + bias) v W^T / sqrt(d)

    W has a row for each column of the model and a column for each channel of the head. It is usual attention in other
    letters: sum over heads of A_h V_h W_h^T / sqrt(d) = concatenation of A_h V_h times W_O, where W_O stacks the
    W_h^T / sqrt(d).

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        head_width: d; None: width / heads.
        layers: layers of the model, which the size of W at birth depends on.
        scale: standard deviation of the model's weights at birth. W is drawn sqrt(d) times as large as a model draws
            W_O, which makes up for the division.
        dropout: share of attention weights dropped in training.
    Source: `AttentionAlt` of https://stats.stackexchange.com/q/541049.
    Departs: W is a parameter of each head. Made from the tokens, as queries and keys are, it would give a number for
        each pair of tokens, and no vector for each token.
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
        super().__init__(width, heads, kv_heads, dropout, Variant(head_width=head_width))
        self.out = _Read(width, heads, self.head_width, scale * (self.head_width / (2 * layers)) ** 0.5)


class _Read(nn.Module):
    """Multiply by W^T / sqrt(d), for all heads at once: no product is made for a head by itself."""

    def __init__(self, width: int, heads: int, head_width: int, scale: float) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(heads, width, head_width) * scale)

    def forward(self, y: Float[Tensor, "b n channels"]) -> Tokens:
        return nn.functional.linear(y, self.matrix.transpose(0, 1).flatten(1) * self.matrix.shape[2] ** -0.5)
