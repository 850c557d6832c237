"""Scaled dot-product attention with any positional scheme; chooses the backend that computes it."""

import math
import os
from dataclasses import dataclass

import torch

from ordinate.attention._backend import AttentionCall, ScoreOptions, backends, reference_attention_with_weights
from ordinate.attention._call_checks import check_call
from ordinate.attention._workspace import peak_and_rest
from ordinate.attention.kv_buffer import MaxKeyNorm
from ordinate.core.checks import need, need_fraction, need_known, need_number, need_type
from ordinate.core.records import changed
from ordinate.core.shapes import (
    EncodedKeys,
    EncodedQueries,
    Keys,
    LogSumExp,
    Outputs,
    Queries,
    Values,
    WeightsAndSink,
)
from ordinate.core.tensors import autocasts, without_autocast
from ordinate.schemes._held import apart
from ordinate.schemes._scheme import Encoded, Placed

BACKEND_VARIABLE = "ORDINATE_ATTENTION_BACKEND"
"""Environment variable that forces a backend by name, unless the argument is given."""
BACKENDS = backends()
"""All backends by name, in the order in which they are tried."""
# not the default itself: PyTorch 2.11 cannot compile a function with an object as a default
STANDARD = ScoreOptions()


@dataclass(frozen=True)
class Explanation:
    """The backend chosen for a call, and why.

    Args:
        backend: name of the backend.
        unsupported: the backends tried before it, with the reason why each does not support the call.
        workspace_bytes: what the forward pass holds at most beyond inputs and output, with the encoded queries and
            keys, and with bias and mask unless `at` holds them, as it does from the second layer on. An estimate, on
            CPUs within a fifth of what is held [bytes].
        flops: floating-point operations of the two matrix products.
        way: which of its ways the backend takes, and why; None if it has one way only.
    """

    backend: str
    unsupported: dict[str, str]
    workspace_bytes: int
    flops: int
    way: str | None = None


def attend(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    score_options: ScoreOptions | None = None,
    backend: str | None = None,
) -> Outputs:
    """Encode position and compute attention, softmax(q k^T * scale + bias) v, over the visible query-key pairs.

    A query that sees no key gets exactly 0. Queries and keys are given as projected: the scheme's encoding (RoPE's
    rotation, for example) is applied here, to all keys of the geometry. To encode each key once and keep it in a
    cache, see `attend_encoded`.

    Args:
        q: queries, before position is encoded.
        k: keys, before position is encoded; fewer heads than queries in grouped-query attention.
        v: values, one for each key.
        at: a scheme at a geometry: `scheme.at(where)`. Layers that share a scheme share it.
        scale: multiplies q.k; None: 1 / sqrt(head width), of the width before the encoding.
        dropout: dropout probability of the attention weights.
        score_options: soft cap, attention sinks, a normalisation other than softmax; None: none of these.
        backend: name of the backend to use; None: the one in ORDINATE_ATTENTION_BACKEND, or the first that supports
            the call.

    Raises:
        TypeError: queries and keys that are encoded already.
        ValueError: shapes that do not match each other or the geometry; a scheme that enters at the token embeddings
            without a call of `at.embed`; an unknown backend, or one that does not support the call.
    """
    call = _call(q, k, v, at, scale, dropout, score_options)
    at.need_embedded()
    return _run(call, backend)


def attend_encoded(
    encoded: Encoded,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    score_options: ScoreOptions | None = None,
    backend: str | None = None,
) -> Outputs:
    """Compute attention from queries and keys that are encoded already, as keys from a cache are.

        new = at.encode(q, k)                                # the new tokens only
        keys = torch.cat([cached, new.k], 2)                 # encoded once, when they entered the cache
        y = attend_encoded(Encoded(new.q, keys), v, at)

    Args:
        encoded: encoded queries and keys.
        v: values, one for each key.
        at: a scheme at a geometry, the one that encoded them.
        scale: multiplies q.k; None: 1 / sqrt(width of the encoded queries).
        dropout: as in `attend`.
        score_options: as in `attend`.
        backend: as in `attend`.

    Raises:
        TypeError: tensors in place of encoded queries and keys.
        ValueError: as `attend` does.
    """
    return _run(_encoded_call(encoded, v, at, scale, dropout, score_options), backend)


def attend_with_lse(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    score_options: ScoreOptions | None = None,
    backend: str | None = None,
) -> tuple[Outputs, LogSumExp]:
    """Compute attention and the log-sum-exp of each query's scores, to combine attention over parts of the keys.

        lse_i = log sum_j exp(score_ij);   out = (e^lse1 out1 + e^lse2 out2) / (e^lse1 + e^lse2)

    The scores are those of the softmax, a sink included, in float32 at least. The log-sum-exp of a query that sees no
    key is -inf. Gradients flow through the output only. Arguments and errors are those of `attend`, which encodes
    queries and keys too.
    """
    call = _call(q, k, v, at, scale, dropout, score_options)
    at.need_embedded()
    need(
        call.score_options.normaliser is None,
        "the log-sum-exp needs a softmax",
        "got score_options.normaliser",
        "leave score_options.normaliser out",
    )
    with without_autocast(call.q):
        name, _ = _choose(call, backend)
        return BACKENDS[name].run_with_lse(call)


def attend_with_weights(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    score_options: ScoreOptions | None = None,
) -> tuple[Outputs, WeightsAndSink]:
    """Compute attention and its weights, by the plain formula: all query-key pairs are held in memory.

    The weights are those that the values are multiplied by: after dropout. With attention sinks the last column is
    the weight of the sink. Arguments and errors are those of `attend`, which encodes queries and keys too.
    """
    call = _call(q, k, v, at, scale, dropout, score_options)
    at.need_embedded()
    with without_autocast(q):
        return reference_attention_with_weights(call)


def attend_cached(
    encoded: Encoded,
    v: Values,
    at: Placed,
    max_key_norm: MaxKeyNorm,
    *,
    scale: float | None = None,
    score_options: ScoreOptions | None = None,
    backend: str | None = None,
) -> Outputs:
    """Compute attention over a KV cache whose largest key norms are known: a decoding step.

    Keys whose weight a decaying bias makes negligible are then not read at all (the proof is in
    `ordinate.attention.backends.decode`).

    Args:
        encoded: encoded queries and keys.
        v: values.
        at: a scheme at a geometry.
        max_key_norm: returns the norm of the longest key of each head, or an upper bound: (batch, key heads) in
            float32. It must not be finite where any number of a head's keys and values is not, since keys that are
            skipped are not checked.
        scale: as in `attend`.
        score_options: as in `attend`.
        backend: as in `attend`.

    Raises:
        TypeError: as `attend_encoded` does.
        ValueError: as `attend` does.
    """
    call = changed(_encoded_call(encoded, v, at, scale, 0.0, score_options), max_key_norm=max_key_norm)
    return _run(call, backend)


def explain(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    score_options: ScoreOptions | None = None,
    backend: str | None = None,
) -> Explanation:
    """Return which backend `attend` uses for the same arguments, why not those before it, and what it costs.

    The placed scheme `at` holds afterwards what it held before, and no more.
    """
    at, made = apart(at) if isinstance(at, Placed) else at, list[AttentionCall]()
    # no fused kernel encodes queries and keys
    most, kept = peak_and_rest(
        lambda: made.append(_call(q, k, v, at, scale, dropout, score_options)) or made, queries=0
    )
    (call,) = made
    with without_autocast(call.q):
        # what is made to choose has not been made before the call itself
        asked = changed(call, at=apart(call.at))
        name, unsupported = _choose(asked, backend)
        chosen = BACKENDS[name]
        # the output does not exist yet while queries and keys are encoded
        held = max(most - call.output_bytes, kept + chosen.workspace_bytes(call))
        return Explanation(name, unsupported, held, call.flops, chosen.way(asked))


def _run(call: AttentionCall, backend: str | None) -> Outputs:
    # the inputs are cast as autocast asks; from here on it would only round the bias
    with without_autocast(call.q):
        name, _ = _choose(call, backend)
        return BACKENDS[name].run(call)


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
        reason = candidate.skipped_reason(call)
        if reason is None:
            return name, unsupported
        unsupported[name] = reason
    raise AssertionError("the reference backend supports every call")


def _call(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    scale: float | None,
    dropout: float,
    score_options: ScoreOptions | None,
) -> AttentionCall:
    """Return the call of raw queries and keys: they are encoded here."""
    if isinstance(q, Encoded):
        raise TypeError("attend takes q, k and v; got queries and keys that are encoded; call attend_encoded")
    check_call(q, k, v, at)
    encoded = at.encode_all(q, k)
    # kernels in C++ do not look at bounds
    need(
        encoded.q.shape[:3] == q.shape[:3]
        and encoded.k.shape[:3] == k.shape[:3]
        and encoded.q.shape[3] == encoded.k.shape[3],
        "a scheme must encode queries and keys to one head width, and keep all of them",
        lambda: f"{type(at.scheme).__name__} made {tuple(encoded.q.shape)} and {tuple(encoded.k.shape)}",
        "correct its encode_query and encode_key",
    )
    return _checked_call(encoded.q, encoded.k, v, at, _scale(scale, q), dropout, score_options)


def _encoded_call(
    encoded: Encoded, v: Values, at: Placed, scale: float | None, dropout: float, score_options: ScoreOptions | None
) -> AttentionCall:
    if not isinstance(encoded, Encoded):
        came = type(encoded).__name__
        raise TypeError(f"attend_encoded needs what at.encode(q, k) returns; got {came}; call attend for raw q and k")
    need(
        encoded.scheme is None or encoded.scheme is at.scheme,
        "queries and keys must be encoded by the scheme of `at`",
        lambda: f"got those of {encoded.scheme!r} and {at!r}",
        "call at.encode of the same placed scheme",
    )
    q, k = encoded.q, encoded.k
    check_call(q, k, v, at)
    return _checked_call(q, k, v, at, _scale(scale, q), dropout, score_options)


def _scale(scale: float | None, q: Queries | EncodedQueries) -> float:
    if scale is not None:
        need_number("scale", scale)
        return scale
    return 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0


def _checked_call(
    q: EncodedQueries,
    k: EncodedKeys,
    v: Values,
    at: Placed,
    scale: float,
    dropout: float,
    score_options: ScoreOptions | None,
) -> AttentionCall:
    need_type("score_options", score_options, ScoreOptions, "give ScoreOptions(softcap=...), or leave it out")
    score_options = STANDARD if score_options is None else score_options
    score_options.check_heads(q.shape[1])
    need_fraction("dropout", dropout)
    if autocasts(q):
        wanted = torch.get_autocast_dtype(q.device.type)
        q, k, v = q.to(wanted), k.to(wanted), v.to(wanted)
    need(
        q.dtype == k.dtype == v.dtype,
        "q, k and v must have one dtype",
        lambda: f"got {q.dtype}, {k.dtype}, {v.dtype}",
        "convert them to the same dtype",
    )
    return AttentionCall(q, k, v, at, scale, dropout, score_options)
