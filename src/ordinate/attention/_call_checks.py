"""Checks of the tensors and the scheme of an attention call, before anything is computed."""

import torch

from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.sequence_shard import SequenceShard
from ordinate.core.shapes import Keys, Queries, Values
from ordinate.core.tensors import need_scores, need_size, need_untraced, need_vectors
from ordinate.schemes._scheme import Placed


def check_call(q: Queries, k: Keys, v: Values, at: Placed) -> None:
    """Raise unless queries, keys, values, scheme and geometry fit each other.

    Args:
        q: queries.
        k: keys.
        v: values.
        at: the scheme and the geometry.

    Raises:
        TypeError: no placed scheme, or something else than tensors.
        ValueError: several devices; sizes that do not fit; a bias or a value bias of another size.
    """
    need_untraced()
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
    _check_bias(q, at)
    _check_value_bias(q, v, at)


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


def _check_bias(q: Queries, at: Placed) -> None:
    # a scheme that was built for a number of heads has been asked for it
    if "bias" in at.scheme.hooks and getattr(at.scheme, "heads", None) is None and all(at.where.shape):
        pair = at.where.block(slice(0, 1), slice(0, 1))
        made = at.cached("bias of a pair", lambda: at.scheme.bias(pair))
        if isinstance(made, torch.Tensor) and made.ndim == 4:
            # backends check the numbers of queries and keys where they read the bias
            need_scores("bias", at.scheme, made, (*q.shape[:2], *made.shape[2:]))


def _check_value_bias(q: Queries, v: Values, at: Placed) -> None:
    # a term of another width would be broadcast to the output where one of the two is 1
    if "value_bias" not in at.scheme.hooks:
        return
    # a pair, or nothing without queries or keys; the keys of a shard are on other processes
    sharded = isinstance(at.where, SequenceShard)
    pair = Geometry.causal(1) if sharded else at.where.block(slice(0, 1), slice(0, 1))
    size = *q.shape[:2], pair.shape[0]

    def shape() -> tuple[int, ...] | None:
        with torch.no_grad():
            made = at.scheme.value_bias(q.new_zeros(*size, pair.shape[1]), pair)
        return None if made is None else tuple(made.shape)

    made, wanted = at.cached(("shape of value_bias", size), shape), (*size, v.shape[3])
    need(
        made is None or (len(made) == 4 and made[3] == v.shape[3] and all(map(_fits, made, wanted))),
        f"value_bias of {type(at.scheme).__name__} must have the head width of the values",
        lambda: f"got {made} for outputs of {wanted} (batch, heads, queries, head width)",
        "build the scheme with the width of the values, or without vectors for them",
    )


def _fits(came: int, wanted: int) -> bool:
    return came == 1 or came == wanted
