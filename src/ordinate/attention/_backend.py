"""Base class of attention backends, the attention call that they compute, and the reference formula."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.attention.kv_buffer import MaxKeyNorm
from ordinate.core import catalog
from ordinate.core.checks import need, need_positive
from ordinate.core.devices import on_cpu, on_gpu
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Keys, LogSumExp, Outputs, Queries, Values, Visible, Weights, WeightsAndSink
from ordinate.core.tensors import has_free_values, need_scores, need_vectors
from ordinate.ops.double_backward import untraceable
from ordinate.ops.heads import repeat_keys
from ordinate.ops.largest import largest_entry
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
        if not (self.normaliser is None or callable(self.normaliser)):
            came = type(self.normaliser).__name__
            raise TypeError(
                f"normaliser must be a function of scores and mask; got {came}; leave it out for a softmax"
            )
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

    @cached_property
    def largest(self) -> tuple[float, float, float]:
        """Largest magnitude of the numbers in q, k and v; NaN if one is."""
        return largest_entry(self.q), largest_entry(self.k), largest_entry(self.v)

    @property
    def overflow_reason(self) -> str | None:
        """Why q, k and v are left to the reference, which keeps NaN and infinity in their rows; None if they are not.

        On GPUs nothing is looked for, since reading a number would wait for all work given to the device.
        """
        if not on_cpu(self.q):
            return None
        if not all(map(math.isfinite, self.largest)):
            return "q, k or v contains NaN or infinity"
        # a product of two numbers below it is finite, and so is a sum of 256 of them
        limit = torch.finfo(torch.promote_types(self.q.dtype, torch.float32)).max ** 0.5 / 16
        return (
            None if max(self.largest) < limit else f"products of numbers above {limit:.0e} in q, k or v may overflow"
        )

    @property
    def score_bound(self) -> float:
        """Upper bound of abs(scale * q.k), from the largest entries of q and k."""
        q, k, _ = self.largest
        return self.q.shape[-1] * abs(self.scale) * q * k

    @property
    def learns(self) -> bool:
        """Whether autograd records the call."""
        tensors = self.q, self.k, self.v, *self.at.scheme.parameters()
        return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products, hidden pairs included."""
        return 2 * self.num_pairs * (self.q.shape[3] + self.v.shape[3])

    @property
    def output_bytes(self) -> int:
        """Size of the output [bytes]."""
        return self.q.element_size() * math.prod(self.q.shape[:3]) * self.v.shape[3]


def finite_attention(call: AttentionCall) -> Outputs:
    """Compute attention by the formula, for finite inputs; the full score matrix is held in memory."""
    return _attention_of(call, attention_scores(call))[0]


def _attention_of(call: AttentionCall, scores: Weights) -> tuple[Outputs, WeightsAndSink]:
    """Return attention from scores, and the weights of keys and sink."""
    v = repeat_keys(call.v, call.q.shape[1])
    weights = attention_weights(scores, call.where.visible, call.score_options)
    if call.score_options.sinks is not None:
        weights = torch.cat([weights, 1 - weights.sum(-1, keepdim=True)], -1)
    weights = nn.functional.dropout(weights.to(v.dtype), call.dropout)
    own = weights[..., : v.shape[2]]
    carried = call.at.scheme.value_bias(own, call.where)
    return own @ v if carried is None else own @ v + carried, weights


def confined_attention(call: AttentionCall) -> tuple[Outputs, WeightsAndSink]:
    """Compute attention of finite numbers whose products may overflow, and the weights.

    Rows with a score that is NaN or infinite become NaN. They pass no gradient, which would be NaN for all keys.
    """
    # taken for granted on a GPU, where reading a number would wait; unknown in transforms of torch.func, which may
    # map over one of the three only
    known = all(map(has_free_values, (call.q, call.k, call.v)))
    if on_gpu(call.q) or (known and call.overflow_reason is None):
        return _attention_of(call, attention_scores(call))
    seen, lost = call.where.visible[:, None], []

    def confine(scores: Weights) -> Weights:
        bad = ~(scores < float("inf"))
        lost.append((bad & seen).any(-1, keepdim=True))
        return scores.masked_fill(bad | reduce(torch.logical_or, lost), 0.0)

    if known:
        # these rows are left out as queries, too: what a scheme makes of them may be infinite, and infinity times a
        # gradient of 0 is NaN
        with torch.no_grad():
            attention_scores(call, confine)
        call = changed(call, q=call.q.masked_fill(reduce(torch.logical_or, lost), 0.0))
    out, weights = _attention_of(call, attention_scores(call, confine))
    return out.masked_fill(reduce(torch.logical_or, lost), float("nan")), weights


def reference_attention(call: AttentionCall) -> Outputs:
    """Compute attention by the formula; rows that see a non-finite number become NaN, and no others."""

    def attention(q: Queries, k: Keys, v: Values) -> Outputs:
        return confined_attention(changed(call, q=q, k=k, v=v))[0]

    return confine_nonfinite(call.q, call.k, call.v, call.where.visible, attention)


def reference_attention_with_weights(call: AttentionCall) -> tuple[Outputs, WeightsAndSink]:
    """Compute `reference_attention` and the weights of the values; the last column is the sink's, if there is one."""
    kept: list[Tensor] = []

    def attention(q: Queries, k: Keys, v: Values) -> Outputs:
        out, weights = confined_attention(changed(call, q=q, k=k, v=v))
        kept.append(weights)
        return out

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


def attention_scores(call: AttentionCall, confine: Callable[[Weights], Weights] | None = None) -> Weights:
    """Compute the attention scores (logits before the softmax) of all pairs, hidden ones included.

    Args:
        call: the call.
        confine: applied to scores before and after what is added to them; None: nothing.
    """
    scheme, k = call.at.scheme, repeat_keys(call.k, call.q.shape[1])
    # at least float32: scores in 16 bits overflow, or lose the difference between neighbouring offsets
    wide = torch.promote_types(call.q.dtype, torch.float32)
    q, k = call.q.to(wide), k.to(wide)
    own = scheme.score(q, k, call.where)
    product = (q @ k.mT if own is None else own) * call.scale
    scored = call.score_options.apply_softcap(product if confine is None else confine(product))
    content = scheme.content_bias(q, k, call.where)
    need_scores("content_bias", scheme, content, (*q.shape[:2], *call.where.shape))
    for bias in (call.at.bias, content):
        if bias is not None:
            scored = scored + bias
    return scored if confine is None else confine(scored)


def attention_weights(scores: Weights, visible: Visible, options: ScoreOptions) -> Weights:
    """Compute attention weights: softmax of the scores over visible keys and the sink; 0 if a query sees no key.

    A bias of -inf hides a key as the mask does.
    """
    if options.normaliser is not None:
        return options.normaliser(scores, visible)
    scores = scores.masked_fill(~visible[:, None], float("-inf"))
    hidden = scores == float("-inf")
    empty = hidden.all(-1, keepdim=True)
    if options.sinks is not None:
        sink = options.sink_scores(scores)
        scores, empty = torch.cat([scores, sink], -1), empty & (sink == float("-inf"))
    # a row without visible keys is set to 0 before the softmax: masking its NaN afterwards would leave NaN gradients
    scores = scores.masked_fill(empty, 0.0)
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
