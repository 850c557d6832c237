"""Binding of the C++ root mean square normalisation (rms_norm.cpp, see `ordinate.ops.rms_norm`)."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.double_backward import gradients, in_one
from ordinate.ops.native.job import NUMBER, POINTER, WHOLE, call_kernel

# as in rms_norm.cpp: rows per task
BLOCK = 128
Rows = Float[Tensor, "*any width"]
Channel = Float[Tensor, " width"]
Plain = Callable[[Rows, Channel], Rows]


class _Job(ctypes.Structure):
    # as in rms_norm.cpp
    _fields_ = [
        ("rows", WHOLE),
        ("width", WHOLE),
        ("epsilon", NUMBER),
        *((name, POINTER) for name in ("x", "weight", "gradient", "out", "dweight")),
    ]


def rms_norm(plain: Plain, x: Rows, weight: Channel, epsilon: float) -> Rows:
    """RMSNorm of the rows of a contiguous float32 tensor; `plain` is the same in PyTorch, for second derivatives."""
    return _RmsNorm.apply(plain, epsilon, x, weight.contiguous())


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a function and a number are no tensors)
    def forward(ctx: Any, plain: Plain, epsilon: float, x: Tensor, weight: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight)
        ctx.plain, ctx.epsilon = plain, epsilon
        out = torch.empty_like(x)
        _run(epsilon, x=x, weight=weight, out=out)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors

        def fast(gradient: Tensor) -> tuple[Tensor, Tensor]:
            of_x, blocks = torch.empty_like(x), -(-x.numel() // (x.shape[-1] * BLOCK))
            of_weight = weight.new_zeros(blocks, x.shape[-1])
            _run(ctx.epsilon, x=x, weight=weight, gradient=gradient.contiguous(), out=of_x, dweight=of_weight)
            return of_x, of_weight.sum(0)

        return None, None, *gradients(fast, in_one(ctx.plain), (x, weight), grad_outputs)


def _run(epsilon: float, **tensors: Tensor) -> None:
    x = tensors["x"]
    call_kernel("rms_norm", _Job(x.numel() // x.shape[-1], x.shape[-1], epsilon), tensors)
