"""Call the C++ attention of a few queries to many keys."""

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.native.job import BOOL, NUMBER, POINTER, WHOLE, View, run
from ordinate.shapes import Bias, Keys, Lengths, Outputs, Queries, Values


class _Job(ctypes.Structure):
    # as in decode.cpp
    _fields_ = [
        ("bfloat16", BOOL),
        *((name, WHOLE) for name in ("batch", "heads", "key_heads", "queries", "width", "depth", "first", "last")),
        ("scale", NUMBER),
        *((name, View) for name in ("q", "k", "v", "out", "bias")),
        *((name, POINTER) for name in ("sinks", "longest", "finite")),
    ]


def attend(
    q: Queries,
    k: Keys,
    v: Values,
    bias: Bias | None,
    sinks: Float[Tensor, " h"] | None,
    *,
    scale: float,
    seen: slice,
    longest: Lengths | None = None,
) -> Outputs | None:
    """softmax([q k^T scale + bias, sinks]) [v, 0]; None: a number that was read, or came out, is not finite.

    Args:
        q: queries in float32 or bfloat16, as are keys and values.
        k: keys.
        v: values.
        bias: float32; -inf where a key is hidden. A query that sees nothing gets 0.
        sinks: float32.
        scale: multiplies q.k.
        seen: the keys that any query sees; the others are not read.
        longest: float32; no key of a head is longer. With it, keys that together weigh at most 2^-26 of a row by
            their bias are not read either, unless it is not finite.
    """
    q, k, v = (_beside(x) for x in (q, k, v))
    bias = None if bias is None else _beside(bias.expand(*q.shape[:3], -1))
    sinks, longest = (None if x is None else x.contiguous() for x in (sinks, longest))
    out, finite = q.new_empty(*q.shape[:3], v.shape[3]), ctypes.c_bool()
    sizes = *q.shape[:2], k.shape[1], q.shape[2], q.shape[3], v.shape[3], seen.start, seen.stop
    views = (View() if x is None else View.of(x) for x in (q, k, v, out, bias))
    flat = *(None if x is None else x.data_ptr() for x in (sinks, longest)), ctypes.addressof(finite)
    run("decode", _Job(q.dtype == torch.bfloat16, *sizes, scale, *views, *flat))
    return out if finite else None


def _beside(x: Tensor) -> Tensor:
    """Its channels beside each other."""
    return x if x.stride(-1) == 1 else x.contiguous()
