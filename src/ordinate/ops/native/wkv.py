"""Binding of the C++ WKV operator of RWKV-4 (wkv.cpp, see `ordinate.ops.wkv`): one pass over time."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.double_backward import Tensors, gradients
from ordinate.ops.native.job import BOOL, POINTER, WHOLE, call_kernel

Channels = Float[Tensor, "b n c"]
Channel = Float[Tensor, " c"]
# numerator and denominator divided by e^exponent, and the exponent, which has no gradient
Sums = Float[Tensor, "b 3 c"]
Plain = Callable[..., tuple[Tensor, Tensor]]


class _Job(ctypes.Structure):
    # as in wkv.cpp
    _fields_ = [
        ("back", BOOL),
        *((name, WHOLE) for name in ("batch", "tokens", "channels")),
        *((name, POINTER) for name in ("decay", "bonus", "k", "v", "start", "end", "y", "top", "share")),
        *((name, POINTER) for name in ("gradient", "gradient_end", "dk", "dv", "ddecay", "dbonus", "dstart")),
    ]


def wkv(plain: Plain, k: Channels, v: Channels, decay: Channel, bonus: Channel, start: Sums) -> tuple[Channels, Sums]:
    """Return the weighted mean at each token, and the final state, in float32.

    `plain` is the same in PyTorch, for second derivatives; the exponent of the final state is given to it.
    """
    return _Wkv.apply(plain, *(x.contiguous() for x in (k, v, decay, bonus, start)))


class _Wkv(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a function is not a tensor)
    def forward(ctx: Any, plain: Plain, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.plain, given = plain, dict(zip(("k", "v", "decay", "bonus", "start"), inputs, strict=True))
        made = {name: torch.empty_like(given["k"]) for name in ("y", "top", "share")}
        made["end"] = torch.empty_like(given["start"])
        _run(False, given | made)
        ctx.save_for_backward(*given.values(), *made.values())
        return made["y"], made["end"]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        inputs, exponent = saved[:5], saved[-1][:, 2:].detach()
        fast = partial(_gradients, saved)

        def plain(given: Tensors, upstream: Tensors) -> list[tuple[Tensors, Tensors]]:
            return [(ctx.plain(*given, exponent), upstream)]

        return None, *gradients(fast, plain, inputs, grad_outputs)


def _gradients(saved: tuple[Tensor, ...], asked: Tensor | None, end: Tensor | None) -> tuple[Tensor, ...]:
    names = ("k", "v", "decay", "bonus", "start", "y", "top", "share", "end")
    given = dict(zip(names, saved, strict=True))
    k = given["k"]
    given["gradient"] = torch.zeros_like(k) if asked is None else asked.contiguous()
    if end is not None:
        given["gradient_end"] = end.contiguous()
    made = {"dk": torch.empty_like(k), "dv": torch.empty_like(k)}
    made |= {name: k.new_empty(k.shape[0], k.shape[2]) for name in ("ddecay", "dbonus")}
    made["dstart"] = torch.zeros_like(given["start"])
    _run(True, given | made)
    return made["dk"], made["dv"], made["ddecay"].sum(0), made["dbonus"].sum(0), made["dstart"]


def _run(back: bool, tensors: dict[str, Tensor]) -> None:
    call_kernel("wkv", _Job(back, *tensors["k"].shape), tensors)
