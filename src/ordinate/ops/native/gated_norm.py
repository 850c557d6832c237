"""Binding of the C++ gated group norm of RWKV-6 and RWKV-7 (gated_norm.cpp, see `ordinate.ops.gated_norm`)."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Outputs, Queries
from ordinate.core.tensors import contiguous_channels
from ordinate.ops.double_backward import gradients, in_one
from ordinate.ops.native.job import (
    BOOL,
    NUMBER,
    POINTER,
    WHOLE,
    View,
    call_kernel,
    empty_token_major,
)

# as in gated_norm.cpp: tokens per task
BLOCK = 128
TEXTS, CHANNELS = ("y", "gate", "r", "k", "v"), ("scale", "shift", "bonus")
Channel = Float[Tensor, " width"]
Plain = Callable[..., Tensor]
# r, k and v of the current token, and a factor for each channel
Own = tuple[Queries, Queries, Outputs, Channel]


class _Job(ctypes.Structure):
    # as in gated_norm.cpp
    _fields_ = [
        ("back", BOOL),
        *((name, WHOLE) for name in ("batch", "heads", "tokens", "width")),
        ("epsilon", NUMBER),
        *((name, View) for name in ("y", "gate", "out", "r", "k", "v")),
        *((name, POINTER) for name in CHANNELS),
        *((name, View) for name in ("gradient", *(f"d{name}" for name in TEXTS))),
        *((f"d{name}", POINTER) for name in CHANNELS),
    ]


def gated_norm(
    plain: Plain, y: Outputs, gate: Outputs, scale: Channel, shift: Channel, epsilon: float, own: Own | None
) -> Outputs:
    """Norm of each head times `scale`, plus `shift` and the current token's own term, times the gate.

    `plain` is the same of all the tensors in PyTorch, for second derivatives.
    """
    given = {"y": y, "gate": gate, "scale": scale, "shift": shift}
    given |= {} if own is None else dict(zip(("r", "k", "v", "bonus"), own, strict=True))
    laid = (contiguous_channels(x) if x.ndim == 4 else x.contiguous() for x in given.values())
    return _GatedNorm.apply(plain, epsilon, tuple(given), *laid)


class _GatedNorm(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (names are not tensors)
    def forward(ctx: Any, plain: Plain, epsilon: float, names: tuple[str, ...], *inputs: Tensor) -> Tensor:
        given = dict(zip(names, inputs, strict=True))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        ctx.names, ctx.epsilon, ctx.plain = names, epsilon, plain
        out = empty_token_major(given["y"])
        _run(False, epsilon, given | {"out": out})
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors

        def fast(gradient: Tensor) -> tuple[Tensor, ...]:
            return _gradients(dict(zip(ctx.names, inputs, strict=True)), ctx.epsilon, gradient)

        return None, None, None, *gradients(fast, in_one(ctx.plain), inputs, grad_outputs)


def _gradients(given: dict[str, Tensor], epsilon: float, gradient: Tensor) -> tuple[Tensor, ...]:
    y = given["y"]
    blocks = y.shape[0] * -(-y.shape[2] // BLOCK)
    made = {f"d{name}": empty_token_major(y) for name in TEXTS if name in given}
    made |= {f"d{name}": y.new_zeros(blocks, len(given[name])) for name in CHANNELS if name in given}
    _run(True, epsilon, given | made | {"gradient": contiguous_channels(gradient)})
    found = (made[f"d{name}"] for name in given)
    return tuple(x.sum(0) if x.ndim == 2 else x for x in found)


def _run(back: bool, epsilon: float, tensors: dict[str, Tensor]) -> None:
    job = _Job(back, *tensors["y"].shape, epsilon)
    call_kernel("gated_norm", job, tensors)
