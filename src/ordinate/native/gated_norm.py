"""The norm of each head and a gate (`ordinate.ops.gated_norm`), in one pass, in C++ built on this machine."""

import ctypes
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.native.job import BOOL, NUMBER, POINTER, WHOLE, View, empty_beside, laid_out, run
from ordinate.shapes import Outputs

# as in gated_norm.cpp: tokens of a task
BLOCK = 128
Channel = Float[Tensor, " width"]


class _Job(ctypes.Structure):
    # as in gated_norm.cpp
    _fields_ = [
        ("back", BOOL),
        *((name, WHOLE) for name in ("batch", "heads", "tokens", "width")),
        ("epsilon", NUMBER),
        *((name, View) for name in ("y", "added", "gate", "out")),
        *((name, POINTER) for name in ("scale", "shift")),
        *((name, View) for name in ("gradient", "dy", "dadded", "dgate")),
        *((name, POINTER) for name in ("dscale", "dshift")),
    ]


def gated_norm(
    y: Outputs, gate: Outputs, scale: Channel, shift: Channel, epsilon: float, added: Outputs | None
) -> Outputs:
    """The norm of each head times `scale`, plus `shift` and what is added, times the gate, in float32."""
    return _GatedNorm.apply(epsilon, y, gate, scale, shift, added)


class _GatedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, epsilon: float, *inputs: Tensor | None) -> Tensor:
        given = {
            name: laid_out(x) if x.ndim == 4 else x.contiguous()
            for name, x in zip(("y", "gate", "scale", "shift", "added"), inputs, strict=True)
            if x is not None
        }
        ctx.save_for_backward(*given.values())
        ctx.names, ctx.epsilon = tuple(given), epsilon
        out = empty_beside(given["y"])
        _run(False, epsilon, given | {"out": out})
        return out

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        given = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        y = given["y"]
        made = {f"d{name}": empty_beside(y) for name in ("y", "gate", "added") if name in given}
        sums = {
            f"d{name}": y.new_zeros(y.shape[0] * -(-y.shape[2] // BLOCK), len(given[name]))
            for name in ("scale", "shift")
        }
        _run(True, ctx.epsilon, given | made | sums | {"gradient": laid_out(grad_outputs[0])})
        return None, made["dy"], made["dgate"], *(x.sum(0) for x in sums.values()), made.get("dadded")


def _run(back: bool, epsilon: float, tensors: dict[str, Tensor]) -> None:
    job = _Job(back, *tensors["y"].shape, epsilon)
    for name, tensor in tensors.items():
        setattr(job, name, View.of(tensor) if tensor.ndim == 4 else tensor.data_ptr())
    run("gated_norm", job)
