"""Call the C++ product of a few vectors and a large matrix."""

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.native.job import BOOL, POINTER, WHOLE, run

# more of them are served as well by PyTorch's own products
VECTORS = 8


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
    """The product x W^T + b, summed in float32.

    Args:
        x: `VECTORS` of them at most, in float32 or bfloat16, as are the others.
        weight: its rows' numbers lie side by side.
        bias: None: nothing is added.
    """
    x, bias = x.contiguous(), None if bias is None else bias.contiguous()
    out = x.new_empty(x.shape[0], weight.shape[0])
    sizes = *x.shape, weight.shape[0], weight.stride(0)
    places = x.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr(), out.data_ptr()
    run("linear", _Job(x.dtype == torch.bfloat16, *sizes, *places))
    return out
