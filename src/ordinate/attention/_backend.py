"""Base class of attention backends, the attention call that they compute, and the reference formula."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.attention.kv_buffer import MaxKeyNorm
from ordinate.core import catalog
from ordinate.core.checks import need, need_positive
from ordinate.core.devices import on_cpu
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Keys, LogSumExp, Outputs, Queries, Values, Visible, Weights, WeightsAndSink
from ordinate.core.tensors import need_vectors
from ordinate.ops.double_backward import untraceable
from ordinate.ops.heads import repeat_keys
from ordinate.ops.sdpa import score_bound
from ordinate.schemes._fast_forms import depends_on_offsets
from ordinate.schemes._scheme import Placed

# largest number of scores that `log_sum_exp` holds at a time
MAX_BLOCK_SCORES = 2**22
# hooks that produce or consume tensors of size queries x keys
QUADRATIC_HOOKS = frozenset({"score", "bias", "content_bias", "value_bias"})


@dataclass(frozen=True, eq=False)
class ScoreOptions:
    """Variations of the attention formula: logit soft-capping, attention sinks, another normalisation than softmax.

        softmax([softcap tanh(q k^T scale / softcap) + bias, sinks]) [v, 0]

    Args:
        softcap: scaled products q.k are squashed to (-softcap, softcap) by tanh, before a bias is added (Gemma 2).
        sinks: attention sinks: for each head, the score of an additional key whose value is zero, which every query
            sees. It takes weight from the keys, so that a head can output little (gpt-oss).
        normaliser: function of scores and mask that replaces the softmax. It must return 0 at hidden keys, and treat
            each query independently; one that mixes queries is correct in the backend `reference` only.
    """

    softcap: float | None = None
    sinks: Float[Tensor, " h"] | None = None
    normaliser: Callable[[Weights, Visible], Weights] | None = None

    def __post_init__(self) -> None:
        if self.softcap is not None:
            need_positive("softcap", self.softcap)
        if self.sinks is not None:
            need_vectors("sinks", self.sinks, "heads")
            need(self.normaliser is None, "sinks need the softmax", "got a normaliser too", "give only one of them")

    @property
    def in_use(self) -> tuple[str, ...]:
        """Names of the variations in use."""
        return tuple(name for name in ("softcap", "sinks", "normaliser") if getattr(self, name) is not None)

    def apply_softcap(self, scores: Weights) -> Weights:
        """Apply the soft cap to scaled products q.k."""
        return scores if self.softcap is None else self.softcap * (scores / self.softcap).tanh()

    def sink_scores(self, scores: Weights) -> Float[Tensor, "b h i sinks"]:
        """Return the scores of the sinks as a column to append to those of the keys; empty without sinks."""
        if self.sinks is None:
            return scores[..., :0]
        return self.sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)

    def check_heads(self, heads: int) -> None:
        """Raise a ValueError unless there is one sink for each head, or none at all."""
        if self.sinks is not None:
            came = f"got {len(self.sinks)} for {heads} heads"
            need(len(self.sinks) == heads, "each head needs a sink", came, "give one number for each head")


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """Inputs of one attention computation, softmax(q k^T * scale + bias) v over the visible query-key pairs.

    Args:
        q: encoded queries.
        k: encoded keys; fewer heads than queries in grouped-query attention.
        v: values, as many as keys.
        at: the scheme and the geometry.
        scale: multiplies q.k.
        dropout: dropout probability of the weights; the others are scaled up.
        score_options: variations of the formula.
        max_key_norm: returns an upper bound of each head's key norms; None: unknown.
    """

    q: Queries
    k: Keys
    v: Values
    at: Placed
    scale: float
    dropout: float
    score_options: ScoreOptions
    max_key_norm: MaxKeyNorm | None = None

    @property
    def where(self) -> Geometry:
        """Geometry of the call."""
        return self.at.where

    @property
    def groups(self) -> int:
        """Query heads per key head."""
        return self.q.shape[1] // self.k.shape[1]

    @property
    def num_pairs(self) -> int:
        """Number of query-key pairs, over batch and heads."""
        return math.prod(self.q.shape[:3]) * self.k.shape[2]

    @property
    def is_finite(self) -> bool:
        """True if q, k and v contain no NaN or infinity (a sum that overflows counts as infinite).

        On GPUs it is taken for granted, since reading a number would wait for all work given to the device.
        """
        if not on_cpu(self.q):
            return True
        # one sum is much cheaper than isfinite().all(), which allocates a mask. A sum in float16 could overflow;
        # bfloat16 has the range of float32, and sums faster without conversion
        wide = torch.float32 if self.q.dtype == torch.float16 else None
        total = sum(x.detach().sum(dtype=wide) for x in (self.q, self.k, self.v))
        return bool(torch.as_tensor(total).isfinite())

    @property
    def score_bound(self) -> float:
        """Upper bound of abs(scale * q.k), from the largest entries of q and k."""
        return score_bound(self.q, self.k, self.scale)

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products, hidden pairs included."""
        return 2 * self.num_pairs * (self.q.shape[3] + self.v.shape[3])


def finite_attention(call: AttentionCall) -> Outputs:
    """Compute attention by the formula, for finite inputs; the full score matrix is held in memory."""
    v = repeat_keys(call.v, call.q.shape[1])
    weights = attention_weights(attention_scores(call), call.where.visible, call.score_options).to(v.dtype)
    weights = nn.functional.dropout(weights, call.dropout)
    carried = call.at.scheme.value_bias(weights, call.where)
    return weights @ v if carried is None else weights @ v + carried


def reference_attention(call: AttentionCall) -> Outputs:
    """Compute attention by the formula; rows that see a non-finite number become NaN, and no others."""

    def attention(q: Queries, k: Keys, v: Values) -> Outputs:
        return finite_attention(changed(call, q=q, k=k, v=v))

    return confine_nonfinite(call.q, call.k, call.v, call.where.visible, attention)


def reference_attention_with_weights(call: AttentionCall) -> tuple[Outputs, WeightsAndSink]:
    """Compute `reference_attention` and the weights of the values; the last column is the sink's, if there is one."""
    kept: list[Tensor] = []

    def attention(q: Queries, k: Keys, v: Values) -> Outputs:
        part = changed(call, q=q, k=k, v=repeat_keys(v, call.q.shape[1]))
        weights = attention_weights(attention_scores(part), part.where.visible, part.score_options)
        if call.score_options.sinks is not None:
            weights = torch.cat([weights, 1 - weights.sum(-1, keepdim=True)], -1)
        kept.append(nn.functional.dropout(weights.to(v.dtype), call.dropout))
        own = kept[0][..., : k.shape[2]]
        carried = call.at.scheme.value_bias(own, call.where)
        return own @ part.v if carried is None else own @ part.v + carried

    return confine_nonfinite(call.q, call.k, call.v, call.where.visible, attention), kept[0]


def confine_nonfinite(
    q: Queries,
    k: Keys,
    v: Values,
    visible: Bool[Tensor, "#b #i j"],
    attention: Callable[[Queries, Keys, Values], Outputs],
) -> Outputs:
    """Compute attention so that NaN and infinity reach the rows that see them, which become NaN, and no others.

    Args:
        q: queries.
        k: keys.
        v: values.
        visible: mask, True where a query may attend to a key.
        attention: computes the outputs from finite q, k and v.
    """
    finite = [x.isfinite().all(-1) for x in (q, k, v)]
    # 0 * NaN is NaN, so a weight of zero would not hide it: non-finite vectors are zeroed first
    q, k, v = (x.masked_fill(~ok[..., None], 0.0) for x, ok in zip((q, k, v), finite, strict=True))
    out, seen = attention(q, k, v), visible[:, None]
    keys = (finite[1] & finite[2]).repeat_interleave(q.shape[1] // k.shape[1], 1)
    # a query that sees nothing keeps its output of 0, whatever it contains
    poisoned = (seen & ~keys[:, :, None]).any(-1) | (seen.any(-1) & ~finite[0])
    return out.masked_fill(poisoned[..., None], float("nan"))


@torch.no_grad()
def log_sum_exp(call: AttentionCall) -> LogSumExp:
    """Log-sum-exp of the scores of each query over the keys that it sees; -inf if it sees none. In blocks of rows."""
    queries, keys = call.where.shape
    size, parts = max(1, MAX_BLOCK_SCORES // max(1, math.prod(call.q.shape[:2]) * keys)), []
    for begin in range(0, max(queries, 1), size):
        rows = slice(begin, begin + size)
        part = changed(call, q=call.q[:, :, rows], at=call.at.block(rows))
        scored = attention_scores(part).masked_fill(~part.where.visible[:, None], float("-inf"))
        parts.append(torch.cat([scored, call.score_options.sink_scores(scored)], -1).logsumexp(-1))
    return torch.cat(parts, 2)


def attention_scores(call: AttentionCall) -> Weights:
    """Compute the attention scores (logits before the softmax) of all pairs, hidden ones included."""
    scheme, k = call.at.scheme, repeat_keys(call.k, call.q.shape[1])
    # at least float32: scores in 16 bits overflow, or lose the difference between neighbouring offsets
    wide = torch.promote_types(call.q.dtype, torch.float32)
    q, k = call.q.to(wide), k.to(wide)
    own = scheme.score(q, k, call.where)
    scored = call.score_options.apply_softcap((q @ k.mT if own is None else own) * call.scale)
    for bias in (call.at.bias, scheme.content_bias(q, k, call.where)):
        if bias is not None:
            scored = scored + bias
    return scored


def attention_weights(scores: Weights, visible: Visible, options: ScoreOptions) -> Weights:
    """Compute attention weights: softmax of the scores over visible keys and the sink; 0 if a query sees no key.

    A bias of -inf hides a key as the mask does.
    """
    if options.normaliser is not None:
        return options.normaliser(scores, visible)
    scores = scores.masked_fill(~visible[:, None], float("-inf"))
    hidden = scores == float("-inf")
    # a row without visible keys is set to 0 before the softmax: masking its NaN afterwards would leave NaN gradients
    scores = scores.masked_fill(hidden.all(-1, keepdim=True), 0.0)
    scores = torch.cat([scores, options.sink_scores(scores)], -1) if options.sinks is not None else scores
    return scores.softmax(-1)[..., : hidden.shape[-1]].masked_fill(hidden, 0.0)


def offset_bias_unsupported(call: AttentionCall) -> str | None:
    """Return why the bias is not a function of the offset in memory order alone; None if it is, or there is none."""
    hooks = call.at.scheme.hooks
    others = [hook for hook in hooks if hook in ("score", "content_bias", "value_bias")]
    if others:
        return f"the scheme's {others[0]} depends on more than the offset"
    # positions of several axes have offsets of several axes
    by_offset = call.where.consecutive and depends_on_offsets(call.at.scheme) and call.where.q_pos.shape[-1] == 1
    if "bias" in hooks and not by_offset:
        return "the bias depends on more than the offset in memory order"
    return None


def few_head_pairs(call: AttentionCall, fewest: int) -> str | None:
    """Return that a head has fewer query-key pairs than this, on a CPU; None if not."""
    few = on_cpu(call.q) and math.prod(call.where.shape) < fewest
    return f"other ways are faster with fewer than {fewest} query-key pairs in a head" if few else None


class Backend(ABC):
    """Attention backend: one implementation of the attention formula.

    Must: `priority`, `call_unsupported_reason`, `run`, `workspace_bytes`; agree with the backend `reference`, forward
    and backward. May: `supported_options`, if it supports variations of the formula; `way`, if it has several;
    `slower_reason`, if a later one is faster for some calls; `proof_kind`, if its kernels differ by more than the
    form of a proof (`ordinate.attention._proof.Form`) says.
    """

    priority: ClassVar[int]
    """Priority: backends are tried in ascending order."""
    supported_options: ClassVar[frozenset[str]] = frozenset()
    """Supported variations of the formula: `softcap`, `sinks`, `normaliser`."""
    supports_transforms: ClassVar[bool] = False
    """Whether transforms of torch.func, forward-mode differentiation, meta and fake tensors pass through it."""

    def unsupported_reason(self, call: AttentionCall) -> str | None:
        """Return why this backend does not support the call, its score options included; None if it does."""
        if not self.supports_transforms:
            reason = untraceable(call.q)
            if reason is not None:
                return reason
        unknown = [name for name in call.score_options.in_use if name not in self.supported_options]
        return f"{unknown[0]} of the formula is not supported" if unknown else self.call_unsupported_reason(call)

    @abstractmethod
    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Return why this backend does not support a call whose score options it supports; None if it does."""

    def slower_reason(self, call: AttentionCall) -> str | None:
        """Return why a later backend is faster for a call, if this one supports it; asked where none is named."""
        return None

    def skipped_reason(self, call: AttentionCall) -> str | None:
        """Return why this backend is not chosen for a call where none is named; None: it is, when its turn comes."""
        # first, since a backend may have to prove on a GPU that it supports the call
        return self.slower_reason(call) or self.unsupported_reason(call)

    @abstractmethod
    def run(self, call: AttentionCall) -> Outputs:
        """Compute attention; a query that sees no key gets exactly 0 and passes no gradient."""

    def run_with_lse(self, call: AttentionCall) -> tuple[Outputs, LogSumExp]:
        """Compute attention and each query's log-sum-exp; override it where the backend computes both anyway."""
        return self.run(call), log_sum_exp(call)

    def way(self, call: AttentionCall) -> str | None:
        """Return which of its ways the backend takes for a call that it supports, and why; None: it has one."""
        return None

    def proof_kind(self, at: Placed) -> tuple[str, ...]:
        """Return what a proof on a GPU distinguishes of calls with the same classes of scheme; its case has the same.

        Args:
            at: a scheme in a geometry, of a call or of the small case.
        """
        return ()

    @abstractmethod
    def workspace_bytes(self, call: AttentionCall) -> int:
        """Return the workspace of the forward pass: memory beyond its inputs and output [bytes]."""


@cache
def backends() -> dict[str, Backend]:
    """Return all backends by name, in the order in which they are tried."""
    folder = "ordinate.attention.backends"
    made = {name: catalog.load(folder, Backend, name)() for name in catalog.names(folder)}
    return dict(sorted(made.items(), key=lambda entry: entry[1].priority))
