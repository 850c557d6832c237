"""Binding of the C++ decoding kernel (decode.cpp): attention of a few queries over a KV cache."""

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Bias, KeyNorms, Keys, Outputs, Queries, Values
from ordinate.core.tensors import contiguous_channels
from ordinate.ops.native.job import BOOL, NUMBER, POINTER, WHOLE, View, call_kernel

# keys of a chunk, as in decode.cpp
CHUNK = 512


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
    longest: KeyNorms | None = None,
) -> Outputs | None:
    """softmax([q k^T scale + bias, sinks]) [v, 0]; None if an input that was read or the result is not finite.

    Args:
        q: queries in float32 or bfloat16, as are keys and values.
        k: keys.
        v: values.
        bias: float32; -inf where a key is masked. A fully masked query gives 0.
        sinks: attention sinks, float32: score of an additional key of value 0 for each head.
        scale: multiplies q.k.
        seen: range of keys that any query may attend to; the others are not read.
        longest: float32; upper bound on the norm of the keys of each head. With it, keys whose total weight is at
            most 2^-26 of a row because of their bias are not read either, unless the bound is not finite.
    """
    q, k, v = (contiguous_channels(x) for x in (q, k, v))
    bias = None if bias is None else contiguous_channels(bias.expand(*q.shape[:3], -1))
    sinks, longest = (None if x is None else x.contiguous() for x in (sinks, longest))
    out, finite = q.new_empty(*q.shape[:3], v.shape[3]), ctypes.c_bool()
    sizes = *q.shape[:2], k.shape[1], q.shape[2], q.shape[3], v.shape[3], seen.start, seen.stop
    job = _Job(q.dtype == torch.bfloat16, *sizes, scale, finite=ctypes.addressof(finite))
    tensors = {"q": q, "k": k, "v": v, "out": out, "bias": bias, "sinks": sinks, "longest": longest}
    call_kernel("decode", job, tensors)
    return out if finite else None
