"""Softmax attention."""

from einops import rearrange
from torch import nn

from ordinate.attention import attend
from ordinate.mixer import Mixer, State, check_heads
from ordinate.scheme import PLACES, Placed
from ordinate.shapes import Tokens
from ordinate.tensors import need_size, need_vectors


class Softmax(Mixer):
    """Each token asks, and takes a weighted mean of the values of what it sees.

        y = softmax(q k^T / sqrt(d) + bias) v W_O,   [q, k, v] = x W

    Args:
        width: columns of the model.
        heads: query heads; each has width / heads channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        dropout: share of attention weights dropped in training.
    Source: Vaswani et al. 2017, section 3.2, https://arxiv.org/abs/1706.03762; groups from Ainslie et al. 2023, GQA,
        https://arxiv.org/abs/2305.13245.
    Departs: no biases in the projections.
    """

    honours = frozenset(PLACES)

    def __init__(self, *, width: int, heads: int, kv_heads: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        check_heads(width, heads, kv_heads)
        self.width, self.head_width, self.dropout = width, width // heads, dropout
        self.widths = [width, kv_heads * self.head_width, kv_heads * self.head_width]
        self.project = nn.Linear(width, sum(self.widths), bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tokens, at: Placed, state: State | None = None) -> tuple[Tokens, State]:
        """Attend from the tokens of `x` to what is remembered and to themselves."""
        need_vectors("x", x, "batch, tokens, width")
        need_size("x", self, "width", x.shape[2])
        parts = self.project(x).split(self.widths, -1)
        q, k, v = (rearrange(part, "b n (h d) -> b h n d", d=self.head_width) for part in parts)
        q, k = at.encode(q, k)
        state = State(k, v) if state is None else state.extend(k, v)
        dropout = self.dropout if self.training else 0.0
        # a scheme may have widened q and k: their channels count as they were
        y = attend(q, state.k, state.v, at, scale=self.head_width**-0.5, dropout=dropout)
        return self.out(rearrange(y, "b h n d -> b n (h d)")), state
