"""Binding of the C++ WKV operator of RWKV-4 (wkv.cpp, see `ordinate.ops.wkv`): one pass over time."""

import ctypes
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.ops.native.job import BOOL, POINTER, WHOLE, call_kernel

Channels = Float[Tensor, "b n c"]
Channel = Float[Tensor, " c"]
# numerator and denominator divided by e^exponent, and the exponent, which has no gradient
Sums = Float[Tensor, "b 3 c"]


class _Job(ctypes.Structure):
    # as in wkv.cpp
    _fields_ = [
        ("back", BOOL),
        *((name, WHOLE) for name in ("batch", "tokens", "channels")),
        *((name, POINTER) for name in ("decay", "bonus", "k", "v", "start", "end", "y", "top", "share")),
        *((name, POINTER) for name in ("gradient", "gradient_end", "dk", "dv", "ddecay", "dbonus", "dstart")),
    ]


def wkv(k: Channels, v: Channels, decay: Channel, bonus: Channel, start: Sums) -> tuple[Channels, Sums]:
    """Return the weighted mean at each token, and the final state, in float32."""
    return _Wkv.apply(k, v, decay, bonus, start)


class _Wkv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        given = dict(zip(("k", "v", "decay", "bonus", "start"), (x.contiguous() for x in inputs), strict=True))
        made = {name: torch.empty_like(given["k"]) for name in ("y", "top", "share")}
        made["end"] = torch.empty_like(given["start"])
        _run(False, given | made)
        ctx.save_for_backward(*given.values(), *made.values())
        return made["y"], made["end"]

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        names = ("k", "v", "decay", "bonus", "start", "y", "top", "share", "end")
        given = dict(zip(names, ctx.saved_tensors, strict=True))
        k = given["k"]
        asked, end = grad_outputs
        given["gradient"] = torch.zeros_like(k) if asked is None else asked.contiguous()
        if end is not None:
            given["gradient_end"] = end.contiguous()
        made = {"dk": torch.empty_like(k), "dv": torch.empty_like(k)}
        made |= {name: k.new_empty(k.shape[0], k.shape[2]) for name in ("ddecay", "dbonus")}
        made["dstart"] = torch.zeros_like(given["start"])
        _run(True, given | made)
        return made["dk"], made["dv"], made["ddecay"].sum(0), made["dbonus"].sum(0), made["dstart"]


def _run(back: bool, tensors: dict[str, Tensor]) -> None:
    job = _Job(back, *tensors["k"].shape, **{name: tensor.data_ptr() for name, tensor in tensors.items()})
    call_kernel("wkv", job)
