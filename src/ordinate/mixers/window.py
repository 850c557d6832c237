"""Attention to the nearest tokens."""

from dataclasses import replace

from ordinate.attention_mixer import AttentionMixer
from ordinate.checks import need_window
from ordinate.mixer import KeyValues
from ordinate.projections import Variant
from ordinate.room import Longest
from ordinate.scheme import Placed
from ordinate.shapes import Keys, Outputs, Queries, Tokens, Values


class Window(AttentionMixer):
    """Softmax attention in which each token sees the nearest ones only.

        y_i = sum over |i - j| < w of softmax_j(q_i k_j^T / sqrt(d) + bias) v_j, times W_O;   causal: j <= i too

    Time grows with the tokens times the window, and a decoder remembers the last w - 1 tokens only. What is farther
    away arrives through several layers, w - 1 tokens a layer. Beside a window of the geometry the narrower counts.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        head_width: d; None: width / heads.
        window: w, how many tokens one sees, itself included [tokens]; where all see all, as many to both sides.
        dropout: share of attention weights dropped in training.
    Source: Beltagy et al. 2020, Longformer, section 3.1, https://arxiv.org/abs/2004.05150.
    Departs: w counts the token itself and one side, where the paper's counts both sides and Mistral's one: here w - 1
        tokens before a token, and where all see all w - 1 after it.
    """

    equivariant = False
    # tokens of another sequence are not near
    crosses = False

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
        super().__init__(width, heads, kv_heads, dropout, Variant(head_width=head_width))
        need_window(window)
        self.window = window

    def attend_self(self, x: Tokens, at: Placed, state: KeyValues | None) -> tuple[Tokens, KeyValues]:
        """Attend from the tokens of `x` to the nearest; those that later ones cannot see are forgotten."""
        y, state = super().attend_self(x, at, state)
        left_over = max(0, state.k.shape[2] - self.window + 1)
        if not left_over:
            return y, state
        # copies: views would keep what is forgotten
        return y, KeyValues(state.k[:, :, left_over:].clone(), state.v[:, :, left_over:].clone())

    def attended(self, q: Queries, k: Keys, v: Values, at: Placed, longest: Longest | None = None) -> Outputs:
        """What each head reads of the keys that are left, the newest of the geometry's."""
        keys = at.where.shape[1]
        window = min(self.window, at.where.window or self.window)
        near = at.where.block(slice(None), slice(keys - k.shape[2], None))
        # a window that hides nothing need not be looked at
        near = replace(near, window=window if window < k.shape[2] else None)
        return super().attended(q, k, v, Placed(at.scheme, near), longest)
