"""Binding of the C++ rotary embedding (rotation.cpp)."""

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.native.job import BOOL, WHOLE, View, call_kernel

Heads = Float[Tensor, "b h n d"]
Wave = Float[Tensor, "#b #h n pairs"]


class _Job(ctypes.Structure):
    # as in rotation.cpp
    _fields_ = [
        *((name, BOOL) for name in ("back", "bfloat16", "interleaved")),
        *((name, WHOLE) for name in ("batch", "heads", "tokens", "width", "pairs")),
        *((name, View) for name in ("x", "out", "cos", "sin")),
    ]


def rotate(x: Heads, cos: Wave, sin: Wave, *, interleaved: bool, back: bool, into: Heads | None = None) -> Heads:
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of channels, in one pass over memory.

    Args:
        x: float32 or bfloat16, with contiguous channels.
        cos: float32 with contiguous channels, as is sin.
        sin: multiplies the partner.
        interleaved: channels pair up with their neighbours; otherwise the first half with the second.
        back: apply the transpose, with -sin.
        into: memory for the result, of the shape and dtype of `x`, with contiguous channels; None: new memory.
    """
    out = torch.empty_like(x) if into is None else into
    job = _Job(back, x.dtype == torch.bfloat16, interleaved, *x.shape, cos.shape[-1])
    waves = {"cos": cos.expand(*x.shape[:3], -1), "sin": sin.expand(*x.shape[:3], -1)}
    call_kernel("rotation", job, {"x": x, "out": out, **waves})
    return out
