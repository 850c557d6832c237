"""Binding of the C++ evaluation of piecewise linear functions (piecewise_linear.cpp)."""

import ctypes
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.double_backward import gradients, in_one
from ordinate.ops.native.job import BOOL, POINTER, WHOLE, call_kernel

# points per task, as in piecewise_linear.cpp
CHUNK = 2048
Points = Float[Tensor, "b i j"]
Knots = Float[Tensor, " inner"]
Lines = Float[Tensor, "outputs pieces"]


class _Job(ctypes.Structure):
    # as in piecewise_linear.cpp
    _fields_ = [
        ("back", BOOL),
        *((name, WHOLE) for name in ("batch", "points", "outputs", "pieces")),
        *((name, POINTER) for name in ("x", "knots", "levels", "slopes", "out", "gradient")),
        *((name, POINTER) for name in ("dx", "dlevels", "dslopes")),
    ]


def piecewise_linear(x: Points, knots: Knots, levels: Lines, slopes: Lines) -> Float[Tensor, "b outputs i j"]:
    """Return level + slope x of the piece of each point, in float32; p is the number of knots below x.

    Points, levels and slopes have gradients; that of a point on a knot is the slope before it. The bits do not depend
    on the number of threads.

    Args:
        x: the points, in float64, on the CPU, as all tensors are.
        knots: where pieces meet, ascending; those that do not exist are infinite.
        levels: value of the line of each piece at 0.
        slopes: slope of each piece.
    """
    return _Evaluated.apply(*(y.contiguous() for y in (x, knots, levels, slopes)))


class _Evaluated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        x, levels = inputs[0], inputs[2]
        out = x.new_empty(x.shape[0], len(levels), *x.shape[1:], dtype=torch.float32)
        _run(False, inputs, out=out)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        return gradients(partial(_gradients, *inputs), in_one(_plain), inputs, grad_outputs)


def _plain(x: Points, knots: Knots, levels: Lines, slopes: Lines) -> Tensor:
    piece = torch.bucketize(x, knots)
    return (levels[:, piece] + slopes[:, piece] * x).movedim(1, 0).float()


def _gradients(x: Points, knots: Knots, levels: Lines, slopes: Lines, upstream: Tensor) -> tuple[Tensor | None, ...]:
    chunks = x.shape[0] * -(-x[0].numel() // CHUNK)
    sums = levels.new_zeros(2, chunks, *levels.shape)
    to_x = torch.empty_like(x)
    made = {"dx": to_x, "dlevels": sums[0], "dslopes": sums[1]}
    _run(True, (x, knots, levels, slopes), gradient=upstream.contiguous(), **made)
    return to_x, None, *sums.sum(1)


def _run(back: bool, inputs: tuple[Tensor, ...], **others: Tensor) -> None:
    x, _, levels, _ = inputs
    job = _Job(back, x.shape[0], x[0].numel(), *levels.shape)
    call_kernel("piecewise_linear", job, dict(zip(("x", "knots", "levels", "slopes"), inputs, strict=True)) | others)
