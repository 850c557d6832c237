"""Scaled dot-product attention with any positional scheme; chooses the backend that computes it."""

import math
import os
from dataclasses import dataclass, replace

import torch

from ordinate.attention._backend import AttentionCall, ScoreOptions, backends
from ordinate.attention.kv_buffer import MaxKeyNorm
from ordinate.core.checks import need, need_fraction, need_known, need_number
from ordinate.core.shapes import Keys, LogSumExp, Outputs, Queries, Values
from ordinate.core.tensors import need_size, need_vectors, without_autocast
from ordinate.schemes._scheme import Placed

BACKEND_VARIABLE = "ORDINATE_ATTENTION_BACKEND"
"""Environment variable that forces a backend by name, unless the argument is given."""
BACKENDS = backends()
"""All backends by name, in the order in which they are tried."""
STANDARD = ScoreOptions()


@dataclass(frozen=True)
class Explanation:
    """The backend chosen for a call, and why.

    Args:
        backend: name of the backend.
        unsupported: the backends tried before it, with the reason why each does not support the call.
        workspace_bytes: workspace of the forward pass, beyond inputs and output [bytes].
        flops: floating-point operations of the two matrix products.
    """

    backend: str
    unsupported: dict[str, str]
    workspace_bytes: int
    flops: int


def attend(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    score_options: ScoreOptions = STANDARD,
    backend: str | None = None,
) -> Outputs:
    """Compute attention, softmax(q k^T * scale + bias) v, over the query-key pairs that the geometry allows.

    A query that sees no key gets exactly 0. Queries and keys must be encoded already (`at.encode`), keys from a cache
    included.

    Args:
        q: queries.
        k: keys; fewer heads than queries in grouped-query attention.
        v: values, one for each key.
        at: a scheme at a geometry: `scheme.at(where)`.
        scale: multiplies q.k; None: 1 / sqrt(head width).
        dropout: dropout probability of the attention weights.
        score_options: soft cap, attention sinks, a normalisation other than softmax.
        backend: name of the backend to use; None: the one in ORDINATE_ATTENTION_BACKEND, or the first that supports
            the call.

    Raises:
        ValueError: shapes that do not match each other or the geometry, an unknown backend, or one that does not
            support the call.
    """
    call = _call(q, k, v, at, scale, dropout, score_options)
    name, _ = _choose(call, backend)
    # `_call` has cast the inputs as autocast asks; inside the backend autocast would only round the bias
    with without_autocast(q):
        return BACKENDS[name].run(call)


def attend_with_lse(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    score_options: ScoreOptions = STANDARD,
    backend: str | None = None,
) -> tuple[Outputs, LogSumExp]:
    """Compute attention and the log-sum-exp of each query's scores, to combine attention over parts of the keys.

        lse_i = log sum_j exp(score_ij);   out = (e^lse1 out1 + e^lse2 out2) / (e^lse1 + e^lse2)

    The scores are those of the softmax, a sink included, in float32 at least. The log-sum-exp of a query that sees no
    key is -inf. Gradients flow through the output only. Arguments and errors are those of `attend`.
    """
    call = _call(q, k, v, at, scale, dropout, score_options)
    need(
        score_options.normaliser is None,
        "the log-sum-exp needs a softmax",
        "got score_options.normaliser",
        "leave score_options.normaliser out",
    )
    name, _ = _choose(call, backend)
    with without_autocast(q):
        return BACKENDS[name].run_with_lse(call)


def attend_cached(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    max_key_norm: MaxKeyNorm,
    *,
    scale: float | None = None,
    score_options: ScoreOptions = STANDARD,
    backend: str | None = None,
) -> Outputs:
    """Compute attention over a KV cache whose largest key norms are known: a decoding step.

    Keys whose weight a decaying bias makes negligible are then not read at all (the proof is in
    `ordinate.attention.backends.decode`).

    Args:
        q: queries.
        k: keys.
        v: values.
        at: a scheme at a geometry.
        max_key_norm: returns the norm of the longest key of each head, or an upper bound: (batch, key heads) in
            float32. It must not be finite where any number of a head's keys and values is not, since keys that are
            skipped are not checked.
        scale: as in `attend`.
        score_options: as in `attend`.
        backend: as in `attend`.

    Raises:
        ValueError: as `attend` does.
    """
    call = replace(_call(q, k, v, at, scale, 0.0, score_options), max_key_norm=max_key_norm)
    name, _ = _choose(call, backend)
    with without_autocast(q):
        return BACKENDS[name].run(call)


def explain(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    score_options: ScoreOptions = STANDARD,
    backend: str | None = None,
) -> Explanation:
    """Return which backend `attend` uses for the same arguments, why not those before it, and what it costs."""
    call = _call(q, k, v, at, scale, dropout, score_options)
    name, unsupported = _choose(call, backend)
    return Explanation(name, unsupported, BACKENDS[name].workspace_bytes(call), call.flops)


def _choose(call: AttentionCall, backend: str | None) -> tuple[str, dict[str, str]]:
    if backend is None:
        backend = os.environ.get(BACKEND_VARIABLE) or None
    if backend is not None:
        need_known("backend", backend, BACKENDS)
        reason = BACKENDS[backend].unsupported_reason(call)
        need(
            reason is None,
            f"the backend {backend!r} must support the call",
            f"it does not: {reason}",
            "choose another, or none",
        )
        return backend, {}
    unsupported: dict[str, str] = {}
    for name, candidate in BACKENDS.items():
        reason = candidate.unsupported_reason(call)
        if reason is None:
            return name, unsupported
        unsupported[name] = reason
    raise AssertionError("the reference backend supports every call")


def _call(
    q: Queries, k: Keys, v: Values, at: Placed, scale: float | None, dropout: float, score_options: ScoreOptions
) -> AttentionCall:
    for name, x in (("q", q), ("k", k), ("v", v)):
        need_vectors(name, x, "batch, heads, tokens, head width")
    if not isinstance(at, Placed):
        raise TypeError(f"attention needs a scheme at a geometry; got {type(at).__name__}; pass scheme.at(where)")
    need(
        q.device == k.device == v.device == at.where.q_pos.device,
        "q, k, v and the geometry must be on one device",
        lambda: f"got {q.device}, {k.device}, {v.device}, {at.where.q_pos.device}",
        "move them to the same device",
    )
    _check_sizes(q, k, v, at)
    score_options.check_heads(q.shape[1])
    need_fraction("dropout", dropout)
    if not q.is_meta and torch.is_autocast_enabled(q.device.type):
        wanted = torch.get_autocast_dtype(q.device.type)
        q, k, v = q.to(wanted), k.to(wanted), v.to(wanted)
    need(
        q.dtype == k.dtype == v.dtype,
        "q, k and v must have one dtype",
        lambda: f"got {q.dtype}, {k.dtype}, {v.dtype}",
        "convert them to the same dtype",
    )
    if scale is not None:
        need_number("scale", scale)
    else:
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    return AttentionCall(q, k, v, at, scale, dropout, score_options)


def _check_sizes(q: Queries, k: Keys, v: Values, at: Placed) -> None:
    need(
        k.shape[:3] == v.shape[:3],
        "each key needs one value",
        lambda: f"got k {tuple(k.shape)}, v {tuple(v.shape)}",
        "give k and v the same batch, heads and length",
    )
    need(
        q.shape[0] == k.shape[0],
        "q and k need the same batch size",
        lambda: f"got {q.shape[0]} and {k.shape[0]}",
        "expand or slice one of them",
    )
    need(
        q.shape[3] == k.shape[3],
        "q and k need the same head width",
        lambda: f"got {q.shape[3]} and {k.shape[3]}",
        "project them to the same width",
    )
    need(
        k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0,
        "the number of heads of k must divide that of q",
        lambda: f"got {k.shape[1]} and {q.shape[1]}",
        "choose kv_heads that divides heads",
    )
    need_size("q", at.scheme, "heads", q.shape[1])
    need(
        at.where.shape == (q.shape[2], k.shape[2]),
        "the geometry must have as many queries and keys as q and k",
        lambda: f"got {at.where.shape} for q of {q.shape[2]} and k of {k.shape[2]} tokens",
        "build it for these lengths (Geometry.causal(tokens, cached=...))",
    )
    need(
        at.where.batch_size in (1, q.shape[0]),
        "the geometry must have the batch size of q, or 1",
        lambda: f"got {at.where.batch_size} for a batch of {q.shape[0]}",
        "build it for this batch",
    )
