"""Sliding-window attention."""

from ordinate.attention.kv_buffer import MaxKeyNorm
from ordinate.core.checks import need_window
from ordinate.core.records import changed
from ordinate.core.shapes import Keys, Outputs, Queries, Tokens, Values
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._mixer import KVCache
from ordinate.mixers._projections import AttentionMixer
from ordinate.schemes._scheme import Placed


class Window(AttentionMixer):
    """Sliding-window (local) softmax attention: each token attends to nearby tokens only.

        y_i = sum over |i - j| < w of softmax_j(q_i k_j^T / sqrt(d) + bias) v_j, times W_O;   causal: j <= i too

    Time is proportional to tokens times window, and the KV cache holds the last w - 1 tokens only. The receptive
    field grows by w - 1 tokens per layer. If the geometry has a window too, the narrower one applies.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        head_width: d; None: width / heads.
        window: w, the window including the token itself [tokens]; in the bidirectional form, to either side.
        dropout: dropout probability of the attention weights.
    Source: Beltagy et al. 2020, Longformer, section 3.1, https://arxiv.org/abs/2004.05150.
    Departs: w counts the token itself and one side, where the paper counts both sides and Mistral one: here w - 1
        tokens before a token, and in the bidirectional form also w - 1 after it.
    """

    permutation_equivariant = False
    # a window between two sequences is not defined
    supports_cross_attention = False
    # the cache drops tokens
    supports_fixed_cache = False

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        window: int = 256,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, kv_heads, dropout, AttentionOptions(head_width=head_width))
        need_window(window)
        self.window = window

    def self_attention(self, x: Tokens, at: Placed, state: KVCache | None) -> tuple[Tokens, KVCache]:
        """Compute self-attention within the window, and drop the cached tokens that later ones cannot attend to."""
        y, state = super().self_attention(x, at, state)
        left_over = max(0, state.k.shape[2] - self.window + 1)
        if not left_over:
            return y, state
        # copies: views would keep the dropped tokens alive
        return y, KVCache(state.k[:, :, left_over:].clone(), state.v[:, :, left_over:].clone())

    def attention(self, q: Queries, k: Keys, v: Values, at: Placed, longest: MaxKeyNorm | None = None) -> Outputs:
        """Attention output of each head over the cached keys, which are the last ones of the geometry."""
        keys = at.where.shape[1]
        window = min(self.window, at.where.window or self.window)
        near = at.where.block(slice(None), slice(keys - k.shape[2], None))
        # no window if it masks nothing: faster backends apply
        near = changed(near, window=window if window < k.shape[2] else None)
        return super().attention(q, k, v, Placed(at.scheme, near), longest)
