"""Binding of the C++ token shift of RWKV (blend.cpp, see `ordinate.ops.shift`)."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Tokens
from ordinate.ops.double_backward import gradients, in_one
from ordinate.ops.native.job import BOOL, POINTER, WHOLE, call_kernel

# as in blend.cpp: tokens per task, and the largest number of interpolations at once
BLOCK, MAX_INTERPOLATIONS = 128, 6
Shares = Float[Tensor, "ways width"]
Plain = Callable[..., tuple[Tensor, ...]]
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
    plain: Plain, x: Tokens, first: Float[Tensor, "b width"], shares: Shares, extra: tuple[Tokens, ...]
) -> tuple[Tokens, ...]:
    """Interpolate each token with the previous one, once per row of `shares` (plus `extra`), in float32.

    `plain` is the same of these tensors in PyTorch, for second derivatives.
    """
    return _Blended.apply(plain, *(y.contiguous() for y in (x, first, shares, *extra)))


class _Blended(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a function is not a tensor)
    def forward(ctx: Any, plain: Plain, *inputs: Tensor) -> tuple[Tensor, ...]:
        x, first, shares, *extra = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        ctx.plain = plain
        out = tuple(torch.empty_like(x) for _ in shares)
        _run(False, (x, first, shares), {"extra": extra, "out": out})
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        fast = partial(_gradients, inputs)
        return None, *gradients(fast, in_one(ctx.plain), inputs, grad_outputs)


def _gradients(inputs: tuple[Tensor, ...], *upstream: Tensor | None) -> tuple[Tensor, ...]:
    x, first, shares, *extra = inputs
    dx, dfirst, dextra = torch.empty_like(x), torch.empty_like(first), [torch.empty_like(y) for y in extra]
    dshares = shares.new_zeros(x.shape[0] * -(-x.shape[1] // BLOCK), *shares.shape)
    lists = {
        "extra": extra,
        "gradient": [torch.zeros_like(x) if y is None else y.contiguous() for y in upstream],
        "dextra": dextra,
    }
    _run(True, (x, first, shares), lists, dx=dx, dfirst=dfirst, dshares=dshares)
    return dx, dfirst, dshares.sum(0), *dextra


def _run(back: bool, given: tuple[Tensor, Tensor, Tensor], lists: dict[str, Any], **made: Tensor) -> None:
    x, first, shares = given
    tensors = {"x": x, "first": first, "shares": shares, **made, **lists}
    call_kernel("blend", _Job(back, *x.shape, len(shares)), tensors)
