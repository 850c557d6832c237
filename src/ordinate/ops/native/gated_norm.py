"""Binding of the C++ gated group norm of RWKV-6 and RWKV-7 (gated_norm.cpp, see `ordinate.ops.gated_norm`)."""

import ctypes
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.core.shapes import Outputs, Queries
from ordinate.ops.native.job import (
    BOOL,
    NUMBER,
    POINTER,
    WHOLE,
    View,
    call_kernel,
    contiguous_channels,
    empty_token_major,
)

# as in gated_norm.cpp: tokens per task
BLOCK = 128
TEXTS, CHANNELS = ("y", "gate", "r", "k", "v"), ("scale", "shift", "bonus")
Channel = Float[Tensor, " width"]
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


def gated_norm(y: Outputs, gate: Outputs, scale: Channel, shift: Channel, epsilon: float, own: Own | None) -> Outputs:
    """Norm of each head times `scale`, plus `shift` and the current token's own term, times the gate."""
    given = {"y": y, "gate": gate, "scale": scale, "shift": shift}
    given |= {} if own is None else dict(zip(("r", "k", "v", "bonus"), own, strict=True))
    return _GatedNorm.apply(epsilon, tuple(given), *given.values())


class _GatedNorm(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (names are not tensors)
    def forward(ctx: Any, epsilon: float, names: tuple[str, ...], *inputs: Tensor) -> Tensor:
        given = {
            name: contiguous_channels(x) if x.ndim == 4 else x.contiguous()
            for name, x in zip(names, inputs, strict=True)
        }
        ctx.save_for_backward(*given.values())
        ctx.names, ctx.epsilon = names, epsilon
        out = empty_token_major(given["y"])
        _run(False, epsilon, given | {"out": out})
        return out

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        given = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        y = given["y"]
        blocks = y.shape[0] * -(-y.shape[2] // BLOCK)
        made = {f"d{name}": empty_token_major(y) for name in TEXTS if name in given}
        made |= {f"d{name}": y.new_zeros(blocks, len(given[name])) for name in CHANNELS if name in given}
        _run(True, ctx.epsilon, given | made | {"gradient": contiguous_channels(grad_outputs[0])})
        found = (made[f"d{name}"] for name in ctx.names)
        return None, None, *(x.sum(0) if x.ndim == 2 else x for x in found)


def _run(back: bool, epsilon: float, tensors: dict[str, Tensor]) -> None:
    job = _Job(back, *tensors["y"].shape, epsilon)
    for name, tensor in tensors.items():
        setattr(job, name, View.of(tensor) if tensor.ndim == 4 else tensor.data_ptr())
    call_kernel("gated_norm", job)
