"""Softmax attention."""

from dataclasses import replace

from ordinate.mixer import KeyValues, Mixer
from ordinate.projections import Projections, Variant
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
        head_width: channels of a head; None: width / heads.
        dropout: share of attention weights dropped in training.
        variant: what the heads of some models have beside: biases, norms, a cap, sinks. On a command line
            `softmax:variant.qk_norm=true,variant.cap=50`.
    Source: Vaswani et al. 2017, section 3.2, https://arxiv.org/abs/1706.03762; groups from Ainslie et al. 2023, GQA,
        https://arxiv.org/abs/2305.13245.
    Departs: no biases in the projections unless the variant says so.
    """

    honours = frozenset(PLACES)
    equivariant = True

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        dropout: float = 0.0,
        variant: Variant | None = None,
    ) -> None:
        variant = Variant() if variant is None else variant
        if variant.head_width is None and head_width is not None:
            # a model says how wide its heads are, whatever else they have
            variant = replace(variant, head_width=head_width)
        super().__init__(width, heads, kv_heads, dropout, variant)

    def forward(self, x: Tokens, at: Placed, state: KeyValues | None = None) -> tuple[Tokens, KeyValues]:
        """Attend from the tokens of `x` to what is remembered and to themselves."""
        need_vectors("x", x, "batch, tokens, width")
        need_size("x", self, "width", x.shape[2])
        return self.attend_self(x, at, state)
