"""Binding of the C++ GELU (gelu.cpp, see `ordinate.ops.gelu`)."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.double_backward import gradients, in_one
from ordinate.ops.native.job import BOOL, POINTER, WHOLE, call_kernel

Numbers = Float[Tensor, "*any"]


class _Job(ctypes.Structure):
    # as in gelu.cpp
    _fields_ = [
        ("tanh", BOOL),
        ("half", BOOL),
        ("count", WHOLE),
        *((name, POINTER) for name in ("x", "gradient", "out")),
    ]


def gelu(plain: Callable[[Numbers], Numbers], x: Numbers, *, tanh: bool) -> Numbers:
    """GELU of contiguous float32 or bfloat16 numbers, exact or in the tanh approximation.

    `plain` is the same in PyTorch, for second derivatives.
    """
    return _Gelu.apply(plain, tanh, x)


class _Gelu(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a function is no tensor)
    def forward(ctx: Any, plain: Callable[[Tensor], Tensor], tanh: bool, x: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        ctx.plain, ctx.tanh = plain, tanh
        return _run(tanh, x, None)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors

        def fast(gradient: Tensor) -> tuple[Tensor]:
            return (_run(ctx.tanh, x, gradient.contiguous()),)

        return None, None, *gradients(fast, in_one(ctx.plain), (x,), grad_outputs)


def _run(tanh: bool, x: Tensor, gradient: Tensor | None) -> Tensor:
    out = torch.empty_like(x)
    tensors = {"x": x, "gradient": gradient, "out": out}
    call_kernel("gelu", _Job(tanh, x.dtype == torch.bfloat16, x.numel()), tensors)
    return out
