"""Binding of the C++ search for the largest magnitude (largest.cpp)."""

import ctypes

from jaxtyping import Float
from torch import Tensor

from ordinate.ops.native.job import POINTER, WHOLE, call_kernel

# as in largest.cpp: axes of a tensor beside numbers that lie side by side
AXES = 3


class _Job(ctypes.Structure):
    # as in largest.cpp
    _fields_ = [
        ("bits", WHOLE),
        ("sizes", WHOLE * AXES),
        ("strides", WHOLE * AXES),
        ("run", WHOLE),
        ("x", POINTER),
        ("out", POINTER),
    ]


def largest_magnitude(x: Float[Tensor, "*any"]) -> float | None:
    """Largest magnitude of a tensor in float32, bfloat16 or float16, in one pass over its memory; NaN if a number is.

    None: the kernel cannot read it, since none of its numbers lie side by side, or since they do in too many places.
    """
    *axes, (run, step) = _in_memory_order(x)
    if step != 1 or len(axes) > AXES:
        return None
    sizes, strides = zip(*[(1, 0)] * (AXES - len(axes)), *axes, strict=True)
    out = x.new_empty(())
    # not among the tensors, which must be contiguous; that PyTorch may negate it as it is read does not matter
    job = _Job(8 * x.element_size(), (WHOLE * AXES)(*sizes), (WHOLE * AXES)(*strides), run, x.data_ptr())
    call_kernel("largest", job, {"out": out})
    return out.item()


def _in_memory_order(x: Tensor) -> list[tuple[int, int]]:
    """Sizes and strides from the widest stride to the narrowest; axes that follow each other in memory are joined."""
    found: list[tuple[int, int]] = []
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True), reverse=True):
        if size == 1 or not stride:  # alone, or repeated
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = found[-1][0] * size, stride
        else:
            found.append((size, stride))
    return found or [(1, 1)]
