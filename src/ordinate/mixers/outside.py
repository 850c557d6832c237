"""Attention whose scale stands outside of the softmax."""

from ordinate.attention_mixer import AttentionMixer
from ordinate.projections import Variant
from ordinate.shapes import Outputs, Tokens


class Outside(AttentionMixer):
    """Softmax attention that divides its result by sqrt(d), not its scores: a contrast.

        y = softmax(q k^T + bias) v W_O / sqrt(d),   [q, k, v] = x W

    It shows what the scale is for. Products of queries and keys have d terms. Undivided they are sqrt(d) times as
    large, so that the softmax gives most of the weight to one token, and passes little gradient. After the softmax a
    division does nothing that W_O could not do.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        head_width: d; None: width / heads.
        dropout: share of attention weights dropped in training.
    Source: the question "why is the scale inside the softmax?"; the answer is in Vaswani et al. 2017, section 3.2.1,
        https://arxiv.org/abs/1706.03762.
    Departs: from the paper on purpose, in the place of the scale.
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
        super().__init__(width, heads, kv_heads, dropout, Variant(head_width=head_width, scale=1.0))

    def gather(self, y: Outputs) -> Tokens:
        """What the heads have read, divided, as tokens."""
        return super().gather(y) * self.head_width**-0.5
