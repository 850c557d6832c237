"""Multi-head query, key, value and output projections, and the base class of attention mixers."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.attention._attend import attend_cached, attend_encoded
from ordinate.attention._backend import ScoreOptions
from ordinate.attention.kv_buffer import MaxKeyNorm
from ordinate.core.attention_chunks import in_chunks
from ordinate.core.checks import need, need_fraction, need_positive_counts, need_type
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Context, Keys, Outputs, Positions, Queries, Tokens, Values
from ordinate.core.tensors import need_size, need_tokens, need_vectors
from ordinate.mixers._attention_options import GATES, AttentionOptions
from ordinate.mixers._mixer import KVCache, Mixer, check_heads
from ordinate.mixers._qk_norms import clipped
from ordinate.ops.linear_layer import Linear, linear, weight_and_bias
from ordinate.schemes._scheme import HOOK_TARGETS, Encoded, Placed, Scheme


def zero_at_padding(x: Tokens, where: Geometry) -> Tokens:
    """Set token vectors to 0 at padding: NaN there would reach the gradients of projections, as 0 * NaN is NaN."""
    return x if where.q_document is None else x.masked_fill((where.q_document == PADDING)[..., None], 0.0)


class AttentionProjections(nn.Module):
    """Multi-head attention projections: queries, keys, values, attention and output projection.

        y = concatenation over heads of softmax(q k^T scale + bias) v, times W_O

    With `output_gate` the concatenation is multiplied by sigmoid(x W_G), channel by channel or head by head.

    Args:
        width: columns of the model.
        heads: query heads.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        dropout: dropout probability of the attention weights.
        variant: further options of the heads.

    Raises:
        ValueError: sizes that do not fit each other.
    """

    def __init__(
        self, width: int, heads: int, kv_heads: int | None, dropout: float, variant: AttentionOptions | None = None
    ) -> None:
        super().__init__()
        need_type("variant", variant, AttentionOptions, "give AttentionOptions(...), or leave it out")
        variant = AttentionOptions() if variant is None else variant
        kv_heads = heads if kv_heads is None else kv_heads
        need_positive_counts(width=width, heads=heads)
        check_heads(width if variant.head_width is None else heads * variant.head_width, heads, kv_heads)
        need_fraction("dropout", dropout)
        self.width, self.heads, self.dropout, self.softcap = width, heads, dropout, variant.softcap
        self.kv_heads = kv_heads
        self.clip_qkv = variant.clip_qkv
        # otherwise their norm clips them
        self.clip_qk = None if variant.clip_after_norm else variant.clip_qkv
        self.head_width = width // heads if variant.head_width is None else variant.head_width
        # from the unencoded head width: a scheme may append channels to q and k
        self.scale = self.head_width**-0.5 if variant.scale is None else variant.scale
        self.value_width = self.head_width if variant.value_width is None else variant.value_width
        self.value_scale, self.chunk = variant.value_scale, variant.chunk
        self.values_of_keys = variant.values_of_keys
        values = 0 if self.values_of_keys else kv_heads * self.value_width
        self.widths = [heads * self.head_width, kv_heads * self.head_width, values]
        self.project: nn.Linear = Linear(width, sum(self.widths), bias=variant.bias)
        out_bias = variant.bias if variant.out_bias is None else variant.out_bias
        self.out: nn.Module = Linear(heads * self.value_width, width, bias=out_bias)
        gate_bias = variant.bias if variant.gate_bias is None else variant.gate_bias
        gates = heads * (1 if variant.gate_per_head else self.value_width)
        self.output_gate = Linear(width, gates, bias=gate_bias) if variant.output_gate else None
        self.gate_function = GATES[variant.gate_kind]
        self.q_norm, self.k_norm = variant.qk_norms(self.head_width, heads, kv_heads)
        self.qk_norm_after = variant.qk_norm_after
        self.value_norm = variant.make_value_norm(self.value_width, kv_heads)
        self.sinks = nn.Parameter(torch.zeros(heads)) if variant.sinks else None

    def self_attention(self, x: Tokens, at: Placed, state: KVCache | None) -> tuple[Tokens, KVCache]:
        """Self-attention of the tokens of `x`, over the cache and themselves; returns the extended cache too."""
        q, k, v = self.project_qkv(x)
        if self.qk_norm_after:
            new = self._encoded_and_normalised(q, k, at)
        else:
            new = at.encode(self.q_norm(q), self.k_norm(k), into=None if state is None else state.reserve(k))
        v = self.values_at(v, at)
        state = KVCache(new.k, v) if state is None else state.append(new.k, v)
        y = self.attention(new.q, state.k, state.v, at, state.max_key_norm)
        return self.output_projection(self.gated(y, x)), state

    own_keys: bool = True
    """Whether it has keys and values of its own; otherwise it attends to those of another layer."""

    @property
    def head_sizes(self) -> tuple[int, int, int]:
        """Numbers of key heads, of channels of a key, and of those of a value."""
        return self.kv_heads, self.head_width, self.value_width

    def values_at(self, v: Values, at: Placed) -> Values:
        """Values of self-attention, before they enter the cache."""
        return v

    def project_context(self, context: Context, scheme: Scheme, pos: Positions) -> KVCache:
        """Keys and values of a context sequence for cross-attention, computed once.

        Args:
            context: token vectors of the context.
            scheme: encodes the keys.
            pos: positions of the context.

        Raises:
            ValueError: tokens and positions of other numbers, or chunks.
        """
        need_tokens("context", context, context.shape[1], pos)
        must, came = "chunk is an option of self-attention", f"got chunk={self.chunk} in cross-attention"
        need(self.chunk is None, must, came, "leave it out there")
        k, v = self.project_keys_values(context)
        return KVCache(self.encode_key(k, scheme, pos), v)

    def cross_attention(self, x: Tokens, seen: KVCache, at: Placed) -> Tokens:
        """Cross-attention of the tokens of `x`, at the query positions, over the keys and values of a context."""
        y = self.attention(self.encoded_queries(x, at), seen.k, seen.v, at)
        return self.output_projection(self.gated(y, x))

    def encoded_queries(self, x: Tokens, at: Placed) -> Queries:
        """Queries for cross-attention, with positions encoded."""
        need_tokens("x", x, x.shape[1], at.where.q_pos)
        return self.encode_query(self.project_queries(x), at)

    def encode_query(self, q: Queries, at: Placed, *, normed: bool = False) -> Queries:
        """Encode position into queries for cross-attention, and normalise them; `normed`: the latter is done."""
        if self.qk_norm_after:
            return self.q_norm(self._of_head_width(at.scheme.encode_query(q, at.where.q_pos)))
        return at.scheme.encode_query(q if normed else self.q_norm(q), at.where.q_pos)

    def encode_key(self, k: Keys, scheme: Scheme, pos: Positions, *, normed: bool = False) -> Keys:
        """Encode position into keys for cross-attention, and normalise them; `normed`: the latter is done."""
        if self.qk_norm_after:
            return self.k_norm(self._of_head_width(scheme.encode_key(k, pos)))
        return scheme.encode_key(k if normed else self.k_norm(k), pos)

    def project_queries(self, x: Tokens) -> Queries:
        """Queries for cross-attention, before positions are encoded."""
        return clipped(self.split_heads(self._part(x, slice(self.widths[0]))), self.clip_qk)

    def project_keys_values(self, context: Context) -> tuple[Keys, Values]:
        """Keys and values for cross-attention, before positions are encoded."""
        k, v = self._part(context, slice(self.widths[0], None)).split(self.widths[1:], -1)
        return clipped(self.split_heads(k), self.clip_qk), self._values(k if self.values_of_keys else v)

    def project_qkv(self, x: Tokens) -> tuple[Queries, Keys, Values]:
        """Queries, keys and values for self-attention, before positions are encoded."""
        q, k, v = self.project(x).split(self.widths, -1)
        v = self._values(k if self.values_of_keys else v)
        q, k = (clipped(self.split_heads(part), self.clip_qk) for part in (q, k))
        return q, k, v

    def split_heads(self, x: Tokens) -> Queries:
        """Split columns into heads: (batch, tokens, heads * head_width) to (batch, heads, tokens, head_width)."""
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)

    def attention(self, q: Queries, k: Keys, v: Values, at: Placed, longest: MaxKeyNorm | None = None) -> Outputs:
        """Attention output of each head, before the output projection, from encoded queries and keys."""
        size = self.chunk
        if size is not None:
            # layers with the same chunks share what depends on positions
            at = at.cached(("chunks", size), lambda: Placed(at.scheme, in_chunks(at.where, size)))
        return self.compute_attention(q, k, v, at, self.score_options, longest=longest)

    def compute_attention(
        self,
        q: Queries,
        k: Keys,
        v: Values,
        at: Placed,
        score_options: ScoreOptions,
        backend: str | None = None,
        longest: MaxKeyNorm | None = None,
    ) -> Outputs:
        """Compute attention with a backend. Instrumentation replaces this method on the instance."""
        dropout = self.dropout if self.training else 0.0
        given, scale = Encoded(q, k), self.scale
        if longest is not None and not dropout:
            return attend_cached(given, v, at, longest, scale=scale, score_options=score_options, backend=backend)
        return attend_encoded(
            given, v, at, scale=scale, dropout=dropout, score_options=score_options, backend=backend
        )

    @property
    def score_options(self) -> ScoreOptions:
        """Changes to the attention formula: soft-capping, sinks, another normaliser than the softmax."""
        return ScoreOptions(self.softcap, self.sinks)

    def gated(self, y: Outputs, x: Tokens) -> Outputs:
        """Multiply the outputs of the heads by their gates, which the tokens of the queries determine, if any."""
        if self.output_gate is None:
            return y
        return y * self.gate_function(self.output_gate(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def output_projection(self, y: Outputs) -> Tokens:
        """Concatenate the heads and apply the output projection."""
        return self.out(y.transpose(1, 2).flatten(2))

    def _encoded_and_normalised(self, q: Queries, k: Keys, at: Placed) -> Encoded:
        made = at.encode(q, k)
        q, k = self.q_norm(self._of_head_width(made.q)), self.k_norm(self._of_head_width(made.k))
        return Encoded(q, k, made.scheme)

    def _of_head_width(self, x: Queries) -> Queries:
        must, came = "qk_norm_after needs a scheme without channels of its own", f"got {x.shape[-1]} channels"
        need(x.shape[-1] == self.head_width, must, f"{came} for a head_width of {self.head_width}", "leave it out")
        return x

    def _part(self, x: Tokens, rows: slice) -> Float[Tensor, "b n columns"]:
        weight, bias = weight_and_bias(self.project)
        return linear(x, weight[rows], None if bias is None else bias[rows])

    def _values(self, x: Float[Tensor, "b n columns"]) -> Values:
        """Return the values of each head from their columns, clipped, normalised and scaled."""
        v = self.value_norm(clipped(x.unflatten(-1, (-1, self.value_width)).transpose(1, 2), self.clip_qkv))
        return v if self.value_scale == 1 else v * self.value_scale


class AttentionMixer(AttentionProjections, Mixer[KVCache]):
    """Base class of attention mixers: all scheme hooks, all geometries, a KV cache.

    Must: take options as keyword arguments and pass the sizes to `AttentionProjections`.
    May: override `project_qkv` (then also `project_queries` and `project_keys_values`; otherwise it does not support
        cross-attention), `values_at`, `attention`, `score_options` or `output_projection`.
    """

    supported_hooks = frozenset(HOOK_TARGETS)
    permutation_equivariant = True
    supports_cross_attention = True
    supports_context_parallel = True
    supports_fixed_cache = True

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse cross-attention by projections of the parent where those of self-attention are overridden."""
        super().__init_subclass__(**options)
        own = vars(cls)
        if "project_qkv" in own and not {"project_queries", "project_keys_values"} <= own.keys():
            cls.supports_cross_attention = own.get("supports_cross_attention", False)

    def forward(self, x: Tokens, at: Placed, state: KVCache | None = None) -> tuple[Tokens, KVCache | None]:
        """Compute self-attention of the tokens of `x` over the cache and themselves."""
        return self.checked(lambda x: self.self_attention(x, at, state), x, at, state)

    def checked(
        self,
        mix: Callable[[Tokens], tuple[Tokens, KVCache | None]],
        x: Tokens,
        at: Placed,
        state: KVCache | None,
    ) -> tuple[Tokens, KVCache | None]:
        """Check tokens and geometry, and mix the tokens, which are 0 at padding, with causal gradients.

        Args:
            mix: attention of tokens, and the new state.
            x: token vectors.
            at: as in `Mixer.forward`.
            state: keys and values that it reads beside these tokens; None: there are none.
        """
        need_vectors("x", x, "batch, tokens, width")
        need_size("x", self, "width", x.shape[2])
        self.check_geometry(at.where)
        x = zero_at_padding(x, at.where)
        y, after = self.with_causal_gradients(mix, x, at, state)
        # the bias of the output projection is not 0 at padding
        return y if getattr(self.out, "bias", None) is None else zero_at_padding(y, at.where), after
