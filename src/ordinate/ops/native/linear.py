"""Binding of the C++ product of a few vectors with a large matrix (linear.cpp), for decoding."""

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.native.job import BOOL, POINTER, WHOLE, call_kernel

# largest number of vectors; with more, PyTorch's matrix product is as fast
MAX_VECTORS = 8


class _Job(ctypes.Structure):
    # as in linear.cpp
    _fields_ = [
        ("bfloat16", BOOL),
        *((name, WHOLE) for name in ("vectors", "inner", "outer", "pitch")),
        *((name, POINTER) for name in ("x", "weight", "bias", "out")),
    ]


def multiply(
    x: Float[Tensor, "vectors inner"],
    weight: Float[Tensor, "outer inner"],
    bias: Float[Tensor, " outer"] | None,
) -> Float[Tensor, "vectors outer"]:
    """Return x W^T + b, accumulated in float32.

    Args:
        x: at most `MAX_VECTORS` vectors, in float32 or bfloat16, as are the others.
        weight: matrix with contiguous rows.
        bias: added to each vector; None: no bias.
    """
    x, weight, bias = x.contiguous(), weight.resolve_neg(), None if bias is None else bias.contiguous()
    out = x.new_empty(x.shape[0], weight.shape[0])
    sizes = *x.shape, weight.shape[0], weight.stride(0)
    tensors = {"x": x, "weight": weight, "bias": bias, "out": out}
    call_kernel("linear", _Job(x.dtype == torch.bfloat16, *sizes), tensors)
    return out
