"""Softmax attention."""

from dataclasses import replace

from ordinate.attention_mixer import AttentionMixer
from ordinate.checks import need
from ordinate.mixer import HOOKS, Borrower, KeyValues
from ordinate.ops.relative import Projection
from ordinate.projections import Variant
from ordinate.scheme import Placed
from ordinate.shapes import Tokens


class Softmax(AttentionMixer):
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

    honours = HOOKS

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

    def attend_self(self, x: Tokens, at: Placed, state: KeyValues | None) -> tuple[Tokens, KeyValues]:
        """Attend from the tokens of `x` to what is remembered and to themselves, with a scheme that may borrow."""
        return super().attend_self(x, self._lend(at), state)

    def _lend(self, at: Placed) -> Placed:
        """The scheme with the projections of this layer, where it asks for them."""
        given: object = at.scheme
        if "borrow" not in at.scheme.hooks or not isinstance(given, Borrower):
            return at
        queries, keys, _ = self.widths
        need(queries == keys, "a scheme borrows projections of as many keys as queries", "got fewer", "drop kv_heads")
        weights, bias = self.project.weight.split(self.widths), self.project.bias
        biases = (None, None, None) if bias is None else bias.split(self.widths)
        query, key = (Projection(weights[part], biases[part]) for part in range(2))
        return Placed(given.borrow(query, key), at.where)
