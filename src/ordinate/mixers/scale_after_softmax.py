"""Attention with the 1 / sqrt(d) scale after the softmax instead of inside it."""

from ordinate.core.shapes import Outputs, Tokens
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._projections import AttentionMixer


class ScaleAfterSoftmax(AttentionMixer):
    """Softmax attention with the 1 / sqrt(d) scale applied to the output instead of the scores: a contrast.

        y = softmax(q k^T + bias) v W_O / sqrt(d),   [q, k, v] = x W

    It shows the effect of the scale. Dot products of queries and keys have d terms. Without the scale they are
    sqrt(d) times as large, so the softmax saturates: most of the weight goes to one token, and gradients are small. A
    scale after the softmax can be absorbed into W_O.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        head_width: d; None: width / heads.
        dropout: dropout probability of the attention weights.
    Source: the question "why is the scale inside the softmax?"; the answer is in Vaswani et al. 2017, section 3.2.1,
        https://arxiv.org/abs/1706.03762.
    Departs: intentionally, in where the scale is applied.
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, kv_heads, dropout, AttentionOptions(head_width=head_width, scale=1.0))

    def output_projection(self, y: Outputs) -> Tokens:
        """Concatenate the heads, project, and apply the scale."""
        return super().output_projection(y) * self.head_width**-0.5
