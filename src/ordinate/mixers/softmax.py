"""Softmax attention."""

from ordinate.mixer import KeyValues, Mixer
from ordinate.projections import Projections
from ordinate.scheme import PLACES, Placed
from ordinate.shapes import Tokens
from ordinate.tensors import need_size, need_vectors


class Softmax(Projections, Mixer[KeyValues]):
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
    equivariant = True

    def __init__(self, *, width: int, heads: int, kv_heads: int | None = None, dropout: float = 0.0) -> None:
        super().__init__(width, heads, kv_heads, dropout)

    def forward(self, x: Tokens, at: Placed, state: KeyValues | None = None) -> tuple[Tokens, KeyValues]:
        """Attend from the tokens of `x` to what is remembered and to themselves."""
        need_vectors("x", x, "batch, tokens, width")
        need_size("x", self, "width", x.shape[2])
        return self.attend_self(x, at, state)
