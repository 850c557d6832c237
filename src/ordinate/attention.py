"""Attention with any scheme: one function that picks the way to compute it."""

import math
import os
from dataclasses import dataclass, replace

import torch

from ordinate.checks import need, need_fraction, need_known, need_number
from ordinate.room import Longest
from ordinate.route import Call, Formula, routes
from ordinate.scheme import Placed
from ordinate.shapes import Keys, Outputs, Queries, Totals, Values
from ordinate.tensors import need_size, need_vectors

FORCED = "ORDINATE_ROUTE"
"""The environment variable that forces a route by its name, where no argument names one."""
ROUTES = routes()
"""Every route by name, in the order in which they are tried."""
PLAIN = Formula()


@dataclass(frozen=True)
class Explanation:
    """Which route a call takes, and why.

    Args:
        route: its name.
        refused: the routes tried before it, and the reason of each.
        bytes: what its forward pass holds beyond inputs and output.
        flops: floating-point operations of the two products.
    """

    route: str
    refused: dict[str, str]
    bytes: int
    flops: int


def attend(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    formula: Formula = PLAIN,
    route: str | None = None,
) -> Outputs:
    """softmax(q k^T * scale + bias) v, over the pairs that the geometry lets see each other.

    A query that sees nothing gets exactly 0. Queries and keys come encoded (`at.encode`), keys from a cache included.

    Args:
        q: queries.
        k: keys; with fewer heads than the queries, each serves a group of them.
        v: values, one for each key.
        at: a scheme at a geometry: `scheme.at(where)`.
        scale: multiplies q.k; None: 1 / sqrt(head width).
        dropout: share of the weights dropped.
        formula: what is changed in the formula: a cap on the scores, sinks, other weights than a softmax.
        route: the name of a route to force; None: the one in ORDINATE_ROUTE, or the first that takes the call.

    Raises:
        ValueError: shapes that do not fit each other or the geometry, an unknown route, or one that refuses.
    """
    call = _call(q, k, v, at, scale, dropout, formula)
    name, _ = _choose(call, route)
    # inputs have their type by now; autocast would only round the bias
    with torch.autocast(q.device.type, enabled=False):
        return ROUTES[name].run(call)


def attend_with_lse(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    formula: Formula = PLAIN,
    route: str | None = None,
) -> tuple[Outputs, Totals]:
    """What `attend` gives, and each query's log-sum-exp, by which attention to parts of the keys can be put together.

        lse_i = log sum_j exp(score_ij);   out = (e^lse1 out1 + e^lse2 out2) / (e^lse1 + e^lse2)

    The scores are those that the softmax sees, a sink included, in float32 at least. A query that sees nothing gets
    -inf. Gradients flow through the output only. The arguments and errors are those of `attend`.
    """
    call = _call(q, k, v, at, scale, dropout, formula)
    need(formula.weights is None, "a log-sum-exp is of a softmax", "got other weights", "leave formula.weights out")
    name, _ = _choose(call, route)
    with torch.autocast(q.device.type, enabled=False):
        return ROUTES[name].run_with_lse(call)


def attend_cached(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    longest: Longest,
    *,
    scale: float | None = None,
    formula: Formula = PLAIN,
    route: str | None = None,
) -> Outputs:
    """What `attend` gives for keys and values that were measured as they came: a step of decoding.

    Keys that a decaying bias makes weightless are then not read at all (`ordinate.routes.decode` has the proof).

    Args:
        q: queries.
        k: keys.
        v: values.
        at: a scheme at a geometry.
        longest: asked for the length of the longest key of each head, at least: (batch, key heads) in float32. It
            must not be finite where any number of a head's keys and values is not: what is not read is not looked at.
        scale: as in `attend`.
        formula: likewise.
        route: likewise.

    Raises:
        ValueError: as `attend` does.
    """
    call = replace(_call(q, k, v, at, scale, 0.0, formula), longest=longest)
    name, _ = _choose(call, route)
    with torch.autocast(q.device.type, enabled=False):
        return ROUTES[name].run(call)


def explain(
    q: Queries,
    k: Keys,
    v: Values,
    at: Placed,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    formula: Formula = PLAIN,
    route: str | None = None,
) -> Explanation:
    """Which route `attend` takes for the same arguments, why not the others, and what it costs."""
    call = _call(q, k, v, at, scale, dropout, formula)
    name, refused = _choose(call, route)
    return Explanation(name, refused, ROUTES[name].bytes(call), call.flops)


def _choose(call: Call, route: str | None) -> tuple[str, dict[str, str]]:
    if route is None:
        route = os.environ.get(FORCED) or None
    if route is not None:
        need_known("route", route, ROUTES)
        reason = ROUTES[route].refusal(call)
        need(
            reason is None,
            f"the route {route!r} must take the call",
            f"it refuses: {reason}",
            "force another, or none",
        )
        return route, {}
    refused: dict[str, str] = {}
    for name, candidate in ROUTES.items():
        reason = candidate.refusal(call)
        if reason is None:
            return name, refused
        refused[name] = reason
    raise AssertionError("the reference route takes every call")


def _call(q: Queries, k: Keys, v: Values, at: Placed, scale: float | None, dropout: float, formula: Formula) -> Call:
    for name, x in (("q", q), ("k", k), ("v", v)):
        need_vectors(name, x, "batch, heads, tokens, head width")
    if not isinstance(at, Placed):
        raise TypeError(f"attention asks a scheme at a geometry; got {type(at).__name__}; give scheme.at(where)")
    need(
        q.device == k.device == v.device == at.where.q_pos.device,
        "q, k, v and the geometry live on one device",
        f"got {q.device}, {k.device}, {v.device}, {at.where.q_pos.device}",
        "move them to one",
    )
    _check_sizes(q, k, v, at)
    formula.check_heads(q.shape[1])
    need_fraction("dropout", dropout)
    if torch.is_autocast_enabled(q.device.type):
        wanted = torch.get_autocast_dtype(q.device.type)
        q, k, v = q.to(wanted), k.to(wanted), v.to(wanted)
    need(
        q.dtype == k.dtype == v.dtype,
        "q, k and v need one type",
        f"got {q.dtype}, {k.dtype}, {v.dtype}",
        "convert them to one",
    )
    if scale is not None:
        need_number("scale", scale)
    else:
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    return Call(q, k, v, at, scale, dropout, formula)


def _check_sizes(q: Queries, k: Keys, v: Values, at: Placed) -> None:
    need(
        k.shape[:3] == v.shape[:3],
        "there is one value for each key",
        lambda: f"got k {tuple(k.shape)}, v {tuple(v.shape)}",
        "give k and v the same batch, heads and length",
    )
    need(
        q.shape[0] == k.shape[0],
        "q and k need the same batch",
        lambda: f"got {q.shape[0]} and {k.shape[0]}",
        "repeat or cut one of them",
    )
    need(
        q.shape[3] == k.shape[3],
        "q and k need the same head width",
        lambda: f"got {q.shape[3]} and {k.shape[3]}",
        "project them to the same width",
    )
    need(
        k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0,
        "the heads of k must divide the heads of q",
        lambda: f"got {k.shape[1]} and {q.shape[1]}",
        "choose kv heads that divide heads",
    )
    need_size("q", at.scheme, "heads", q.shape[1])
    need(
        at.where.shape == (q.shape[2], k.shape[2]),
        "the geometry must have as many queries and keys as q and k",
        lambda: f"got {at.where.shape} for q of {q.shape[2]} and k of {k.shape[2]} tokens",
        "build it for these lengths (Geometry.causal(tokens, cached=...))",
    )
    need(
        at.where.rows in (1, q.shape[0]),
        "the geometry must have the rows of the batch, or one for all",
        lambda: f"got {at.where.rows} for a batch of {q.shape[0]}",
        "build it for this batch",
    )
