"""Multi-head softmax attention."""

from dataclasses import replace
from typing import Literal, get_args

from torch import nn

from ordinate.core.checks import need, need_known
from ordinate.core.shapes import Context, Positions, Tokens, Values
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._mixer import ALL_HOOKS, KVCache, UsesProjections
from ordinate.mixers._projections import AttentionMixer
from ordinate.ops.linear_layer import Linear, weight_and_bias
from ordinate.ops.relative import Projection
from ordinate.schemes._scheme import Placed, Scheme

PositionProjections = Literal["query", "key", "both"]


class Softmax(AttentionMixer):
    """Multi-head softmax attention (scaled dot-product attention).

        y = softmax(q k^T / sqrt(d) + bias) v W_O,   [q, k, v] = x W

    Args:
        width: columns of the model.
        heads: query heads; each has width / heads channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        head_width: channels of a head; None: width / heads.
        dropout: dropout probability of the attention weights.
        variant: further options: biases, QK norm, soft-capping, sinks, chunks. On a command line
            `softmax:variant.qk_norm=true,variant.softcap=50`.
        position_projections: which projections of its own there are for the embeddings of relative positions, in a
            scheme with the hook `bind_projections` (deberta with `version.shared`): `query`, `key` or `both`; others
            are those of the tokens. None: all are.
        encode_values: whether values are encoded as keys are (`rotary_value` of the original RoFormer), by a scheme
            that encodes queries and keys alike, such as rope. Outputs then depend on positions, not offsets only.

    Raises:
        ValueError: sizes that do not fit, unknown projections, projections that the scheme does not use, or values
            that it cannot encode.
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
        position_projections: PositionProjections | None = None,
        encode_values: bool = False,
    ) -> None:
        variant = AttentionOptions() if variant is None else variant
        if variant.head_width is None and head_width is not None:
            # the head width of the model applies unless the variant sets its own
            variant = replace(variant, head_width=head_width)
        super().__init__(width, heads, kv_heads, dropout, variant)
        must, came = "encode_values needs values as wide as keys", f"got value_width={variant.value_width}"
        need(not encode_values or self.value_width == self.head_width, must, came, "leave one of them out")
        self.encode_values = encode_values
        if position_projections is not None:
            need_known("option position_projections", position_projections, get_args(PositionProjections))
        self.position_query, self.position_key = (
            Linear(width, self.widths[0], bias=variant.bias) if position_projections in (name, "both") else None
            for name in ("query", "key")
        )

    def forward(
        self, x: Tokens, at: Placed, state: KVCache | None = None, *, shared: KVCache | None = None
    ) -> tuple[Tokens, KVCache | None]:
        """Compute self-attention of the tokens of `x` over the cache and themselves.

        Args:
            x: token vectors.
            at: as in `Mixer.forward`.
            state: as in `Mixer.forward`.
            shared: keys and values of another layer, of all tokens of the geometry, in place of its own.

        Raises:
            ValueError: sizes that do not fit; no keys of another layer, where it has none of its own.
        """
        must = "a layer attends to its own keys and values, or to those of another layer if it has none"
        need(self.own_keys is (shared is None), must, f"got shared={shared is not None}", "run the whole model")
        if shared is None:
            return super().forward(x, at, state)
        return self.checked(lambda x: (self.attend_to(x, shared, at), None), x, at, shared)

    def leave_out_keys(self) -> None:
        """Remove the projections of keys and values, of a layer that attends to those of another layer."""
        queries, _, _ = self.widths
        self.project = Linear(self.width, queries, bias=self.project.bias is not None)
        self.k_norm = nn.Identity()
        self.own_keys, self.widths = False, [queries, 0, 0]

    def attend_to(self, x: Tokens, shared: KVCache, at: Placed) -> Tokens:
        """Self-attention of the tokens of `x` over the keys and values of another layer, of the same tokens."""
        y = self.attention(self.encoded_queries(x, at), shared.k, shared.v, at, shared.max_key_norm)
        return self.output_projection(self.gated(y, x))

    def self_attention(self, x: Tokens, at: Placed, state: KVCache | None) -> tuple[Tokens, KVCache]:
        """Compute self-attention, with the scheme bound to the projections of this layer if it needs them."""
        return super().self_attention(x, self._bound(at), state)

    def values_at(self, v: Values, at: Placed) -> Values:
        return at.encode_alike(v) if self.encode_values else v

    def project_context(self, context: Context, scheme: Scheme, pos: Positions) -> KVCache:
        need(
            not self.encode_values,
            "encode_values is an option of self-attention",
            "got it in cross-attention",
            "leave it out there",
        )
        return super().project_context(context, scheme, pos)

    def _bound(self, at: Placed) -> Placed:
        """Bind the scheme to the query and key projections of this layer if it uses the `bind_projections` hook."""
        given: object = at.scheme
        own = (self.position_query, self.position_key)
        if "bind_projections" not in at.scheme.hooks or not isinstance(given, UsesProjections):
            need(
                own == (None, None),
                "position_projections serve a scheme with the hook `bind_projections`",
                f"got {type(given).__name__}",
                "leave them out, or give the scheme deberta:version.shared=true",
            )
            return at
        queries, keys, _ = self.widths
        came = f"got widths {queries} and {keys}"
        need(
            queries == keys,
            "a scheme with the hook `bind_projections` needs as many key heads as query heads",
            came,
            "drop kv_heads",
        )
        weight, bias = weight_and_bias(self.project)
        weights, biases = weight.split(self.widths), (None, None, None) if bias is None else bias.split(self.widths)
        query, key = (
            Projection(weight, bias) if other is None else Projection(*weight_and_bias(other))
            for weight, bias, other in zip(weights[:2], biases[:2], own, strict=True)
        )
        return Placed(given.bind_projections(query, key), at.where)
