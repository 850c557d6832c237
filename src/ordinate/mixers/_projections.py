"""Multi-head query, key, value and output projections, and the base class of attention mixers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.attention._attend import attend_cached, attend_encoded
from ordinate.attention._backend import ScoreOptions
from ordinate.attention.kv_buffer import MaxKeyNorm
from ordinate.core.attention_chunks import in_chunks
from ordinate.core.checks import need, need_fraction, need_known, need_positive, need_positive_counts, need_type
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Context, Keys, Outputs, Positions, Queries, Tokens, Values
from ordinate.core.tensors import need_size, need_tokens, need_vectors
from ordinate.mixers._mixer import KVCache, Mixer, check_heads
from ordinate.mixers._qk_norms import OTHER_NORMS, AcrossHeadsNorm, QKNorm, clipped
from ordinate.ops.linear_layer import Linear, linear, weight_and_bias
from ordinate.ops.rms_norm import RMSNorm
from ordinate.schemes._scheme import HOOK_TARGETS, Encoded, Placed, Scheme

GateKind = Literal["sigmoid", "softplus"]
"""What makes the gates of the outputs of heads."""
GATES: Mapping[GateKind, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softplus": nn.functional.softplus,
}
# epsilon of that norm
NORM_EPS = 1e-6


@dataclass(frozen=True)
class AttentionOptions:
    """Options of multi-head attention beyond the original transformer.

    Args:
        head_width: channels of a head; None: width / heads.
        scale: factor of the dot products of queries and keys; None: 1 / sqrt(head_width).
        bias: whether the query, key, value and output projections have biases (GPT-2, gpt-oss).
        out_bias: whether the output projection has one; None: as `bias` (Qwen2 has none there).
        qk_norm: whether queries and keys of each head are normalised before positions are encoded (Qwen3).
        qk_norm_kind: that norm: `rms`; `layer`: LayerNorm with a bias (Phi); `layer_per_head`: LayerNorm without a
            bias, with weights of its own for each head (StableLM); `nonparametric_rms`: without weights (nanochat).
        qk_norm_across: whether that norm is one of the channels of all heads together (OLMo 2).
        qk_norm_zero_centred: whether the weights of that norm are added to 1, and start at 0 (Gemma 3).
        qk_norm_after: whether that norm is one of queries and keys whose positions are encoded (Hunyuan).
        norm_eps: epsilon of that norm.
        softcap: logit soft-capping, scores become softcap tanh(score / softcap) (Gemma 2); None: no capping.
        sinks: whether each head has a learned attention sink, a logit that takes part in the softmax and has no value
            (gpt-oss).
        clip_qkv: queries, keys and values are clipped to [-clip_qkv, clip_qkv] as they are projected (MPT); None: no
            clipping.
        clip_after_norm: whether queries and keys are clipped after `qk_norm_across`, not before it (OLMoE).
        output_gate: whether the output of each head is multiplied by a gate, the sigmoid of a linear function of the
            token, before the output projection (Qwen3-Next; Qiu et al. 2025, https://arxiv.org/abs/2505.06708).
        gate_bias: whether that linear function has a bias; None: as `bias` (Trinity has none there).
        gate_kind: what makes the gates of these functions: `sigmoid`, or `softplus` (Laguna).
        gate_per_head: whether a head has one gate, not one for each channel (Laguna).
        value_width: channels of the values of a head; None: as of its queries and keys (MiMo-V2-Flash has fewer).
        value_scale: factor of the values (MiMo-V2-Flash).
        chunk: with it, a token attends to keys of its own chunk only, of so many consecutive positions from 0 of its
            document (Llama 4): see `in_chunks`; None: there are no chunks [tokens].

    Raises:
        ValueError: numbers out of range, an unknown kind of norm, or an option without effect.
    """

    head_width: int | None = None
    scale: float | None = None
    bias: bool = False
    out_bias: bool | None = None
    qk_norm: bool = False
    qk_norm_kind: QKNorm = "rms"
    qk_norm_across: bool = False
    qk_norm_zero_centred: bool = False
    qk_norm_after: bool = False
    norm_eps: float = NORM_EPS
    softcap: float | None = None
    sinks: bool = False
    clip_qkv: float | None = None
    clip_after_norm: bool = False
    output_gate: bool = False
    gate_bias: bool | None = None
    gate_kind: GateKind = "sigmoid"
    gate_per_head: bool = False
    value_width: int | None = None
    value_scale: float = 1.0
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.chunk is not None:
            need_positive_counts(chunk=self.chunk)
        for name in ("head_width", "value_width", "scale", "softcap", "clip_qkv"):
            if getattr(self, name) is not None:
                need_positive(name, getattr(self, name))
        need_fraction("norm_eps", self.norm_eps)
        must = "value_scale must be a finite number"
        need(math.isfinite(self.value_scale), must, f"got {self.value_scale}", "leave it out, for 1")
        need_known("qk_norm_kind", self.qk_norm_kind, ("rms", *OTHER_NORMS))
        is_rms, of_rms = self.qk_norm_kind == "rms", ("qk_norm_across", "qk_norm_zero_centred")
        used = [name for name in of_rms if getattr(self, name)]
        others = {
            "qk_norm_kind": not is_rms,
            "qk_norm_after": self.qk_norm_after,
            "norm_eps": self.norm_eps != NORM_EPS,
        }
        for name in [*used, *(name for name, given in others.items() if given)]:
            need(
                self.qk_norm, f"{name} has an effect only with qk_norm", "got qk_norm=False", "give qk_norm=True too"
            )
        must, came = f"{', '.join(used)} needs qk_norm_kind='rms'", f"got {self.qk_norm_kind!r}"
        need(is_rms or not used, must, came, "leave one of them out")
        must = "clip_after_norm has an effect only with clip_qkv and qk_norm_across"
        came = f"got clip_qkv={self.clip_qkv}, qk_norm_across={self.qk_norm_across}"
        clips = self.clip_qkv is not None and self.qk_norm_across
        need(clips or not self.clip_after_norm, must, came, "give both, or leave it out")
        need_known("gate_kind", self.gate_kind, GATES)
        given = {"gate_bias": self.gate_bias is not None, "gate_kind": self.gate_kind != "sigmoid"}
        for name in (name for name, has in {**given, "gate_per_head": self.gate_per_head}.items() if has):
            must = f"{name} has an effect only with output_gate"
            need(self.output_gate, must, "got output_gate=False", "give output_gate=True too")

    def qk_norms(self, head_width: int, heads: int, kv_heads: int) -> Sequence[nn.Module]:
        """Build the norms of queries and of keys."""
        if not self.qk_norm:
            return nn.Identity(), nn.Identity()
        if self.qk_norm_kind != "rms":
            make = OTHER_NORMS[self.qk_norm_kind]
            return [make(head_width, count, self.norm_eps) for count in (heads, kv_heads)]
        options: dict[str, Any] = {"eps": self.norm_eps, "zero_centred": self.qk_norm_zero_centred}
        if not self.qk_norm_across:
            return [RMSNorm(head_width, **options) for _ in "qk"]
        limit = self.clip_qkv if self.clip_after_norm else None
        return [AcrossHeadsNorm(head_width * count, limit=limit, **options) for count in (heads, kv_heads)]


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
        self.clip_qkv = variant.clip_qkv
        # otherwise their norm clips them
        self.clip_qk = None if variant.clip_after_norm else variant.clip_qkv
        self.head_width = width // heads if variant.head_width is None else variant.head_width
        # from the unencoded head width: a scheme may append channels to q and k
        self.scale = self.head_width**-0.5 if variant.scale is None else variant.scale
        self.value_width = self.head_width if variant.value_width is None else variant.value_width
        self.value_scale, self.chunk = variant.value_scale, variant.chunk
        self.widths = [heads * self.head_width, kv_heads * self.head_width, kv_heads * self.value_width]
        self.project: nn.Linear = Linear(width, sum(self.widths), bias=variant.bias)
        out_bias = variant.bias if variant.out_bias is None else variant.out_bias
        self.out: nn.Module = Linear(heads * self.value_width, width, bias=out_bias)
        gate_bias = variant.bias if variant.gate_bias is None else variant.gate_bias
        gates = heads * (1 if variant.gate_per_head else self.value_width)
        self.output_gate = Linear(width, gates, bias=gate_bias) if variant.output_gate else None
        self.gate_function = GATES[variant.gate_kind]
        self.q_norm, self.k_norm = variant.qk_norms(self.head_width, heads, kv_heads)
        self.qk_norm_after = variant.qk_norm_after
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
        return clipped(self.split_heads(k), self.clip_qk), self._values(v)

    def project_qkv(self, x: Tokens) -> tuple[Queries, Keys, Values]:
        """Queries, keys and values for self-attention, before positions are encoded."""
        q, k, v = self.project(x).split(self.widths, -1)
        q, k = (clipped(self.split_heads(part), self.clip_qk) for part in (q, k))
        return q, k, self._values(v)

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
        """Return the values of each head from their columns, clipped and scaled."""
        v = clipped(x.unflatten(-1, (-1, self.value_width)).transpose(1, 2), self.clip_qkv)
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
        need_vectors("x", x, "batch, tokens, width")
        need_size("x", self, "width", x.shape[2])
        self.check_geometry(at.where)
        x = zero_at_padding(x, at.where)
        y, after = self.with_causal_gradients(lambda x: self.self_attention(x, at, state), x, at, state)
        # the bias of the output projection is not 0 at padding
        return y if getattr(self.out, "bias", None) is None else zero_at_padding(y, at.where), after
