"""Multi-head softmax attention."""

from dataclasses import replace

from ordinate.core.checks import need
from ordinate.core.shapes import Tokens
from ordinate.mixers._mixer import ALL_HOOKS, KVCache, UsesProjections
from ordinate.mixers._projections import AttentionMixer, AttentionOptions
from ordinate.ops.relative import Projection
from ordinate.schemes._scheme import Placed


class Softmax(AttentionMixer):
    """Multi-head softmax attention (scaled dot-product attention).

        y = softmax(q k^T / sqrt(d) + bias) v W_O,   [q, k, v] = x W

    Args:
        width: columns of the model.
        heads: query heads; each has width / heads channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        head_width: channels of a head; None: width / heads.
        dropout: dropout probability of the attention weights.
        variant: further options: biases, QK norm, soft-capping, sinks. On a command line
            `softmax:variant.qk_norm=true,variant.softcap=50`.
    Source: Vaswani et al. 2017, section 3.2, https://arxiv.org/abs/1706.03762; grouped queries from Ainslie et al.
        2023, GQA, https://arxiv.org/abs/2305.13245.
    Departs: no biases in the projections unless the variant says so.
    """

    supported_hooks = ALL_HOOKS

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        dropout: float = 0.0,
        variant: AttentionOptions | None = None,
    ) -> None:
        variant = AttentionOptions() if variant is None else variant
        if variant.head_width is None and head_width is not None:
            # the head width of the model applies unless the variant sets its own
            variant = replace(variant, head_width=head_width)
        super().__init__(width, heads, kv_heads, dropout, variant)

    def self_attention(self, x: Tokens, at: Placed, state: KVCache | None) -> tuple[Tokens, KVCache]:
        """Compute self-attention, with the scheme bound to the projections of this layer if it needs them."""
        return super().self_attention(x, self._bound(at), state)

    def _bound(self, at: Placed) -> Placed:
        """Bind the scheme to the query and key projections of this layer if it uses the `bind_projections` hook."""
        given: object = at.scheme
        if "bind_projections" not in at.scheme.hooks or not isinstance(given, UsesProjections):
            return at
        queries, keys, _ = self.widths
        came = f"got widths {queries} and {keys}"
        need(
            queries == keys,
            "a scheme with the hook `bind_projections` needs as many key heads as query heads",
            came,
            "drop kv_heads",
        )
        weights, bias = self.project.weight.split(self.widths), self.project.bias
        biases = (None, None, None) if bias is None else bias.split(self.widths)
        query, key = (Projection(weights[part], biases[part]) for part in range(2))
        return Placed(given.bind_projections(query, key), at.where)
