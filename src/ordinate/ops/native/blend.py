"""Binding of the C++ token shift of RWKV (blend.cpp, see `ordinate.ops.shift`)."""

import ctypes
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.core.shapes import Tokens
from ordinate.ops.native.job import BOOL, POINTER, WHOLE, call_kernel

# as in blend.cpp: tokens per task, and the largest number of interpolations at once
BLOCK, MAX_INTERPOLATIONS = 128, 6
Shares = Float[Tensor, "ways width"]
_Pointers = POINTER * MAX_INTERPOLATIONS


class _Job(ctypes.Structure):
    # as in blend.cpp
    _fields_ = [
        ("back", BOOL),
        *((name, WHOLE) for name in ("batch", "tokens", "width", "count")),
        *((name, POINTER) for name in ("x", "first", "shares")),
        *((name, _Pointers) for name in ("extra", "out", "gradient")),
        *((name, POINTER) for name in ("dx", "dfirst", "dshares")),
        ("dextra", _Pointers),
    ]


def interpolate_previous(
    x: Tokens, first: Float[Tensor, "b width"], shares: Shares, extra: tuple[Tokens, ...]
) -> tuple[Tokens, ...]:
    """Interpolate each token with the previous one, once per row of `shares` (plus `extra`), in float32."""
    return _Blended.apply(x, first, shares, *extra)


class _Blended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        x, first, shares, *extra = (y.contiguous() for y in inputs)
        ctx.save_for_backward(x, first, shares, *extra)
        out = tuple(torch.empty_like(x) for _ in shares)
        _run(False, (x, first, shares), {"extra": extra, "out": out})
        return out

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        x, first, shares, *extra = ctx.saved_tensors
        dx, dfirst, dextra = torch.empty_like(x), torch.empty_like(first), [torch.empty_like(y) for y in extra]
        dshares = shares.new_zeros(x.shape[0] * -(-x.shape[1] // BLOCK), *shares.shape)
        lists = {"extra": extra, "gradient": [y.contiguous() for y in grad_outputs], "dextra": dextra}
        _run(True, (x, first, shares), lists, dx=dx, dfirst=dfirst, dshares=dshares)
        return dx, dfirst, dshares.sum(0), *dextra


def _run(back: bool, given: tuple[Tensor, Tensor, Tensor], lists: dict[str, Any], **made: Tensor) -> None:
    x, first, shares = given
    job = _Job(back, *x.shape, len(shares), x.data_ptr(), first.data_ptr(), shares.data_ptr())
    for name, tensor in made.items():
        setattr(job, name, tensor.data_ptr())
    for name, tensors in lists.items():
        setattr(job, name, _Pointers(*(tensor.data_ptr() for tensor in tensors)))
    call_kernel("blend", job)
