"""What a token of RWKV-7 changes (`ordinate.ops.correction`), in one pass, in C++ built on this machine."""

import ctypes
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.native.job import BOOL, POINTER, WHOLE, View, empty_beside, laid_out, run
from ordinate.shapes import Queries

# as in correction.cpp: tokens of a task, and the widest head
BLOCK, WIDEST = 128, 256
TEXTS, CHANNELS, MADE = ("k", "slow", "rate"), ("decay", "usual", "erased", "replaced"), ("w", "key", "seen", "moved")
Channel = Float[Tensor, " width"]


class _Job(ctypes.Structure):
    # as in correction.cpp
    _fields_ = [
        ("back", BOOL),
        *((name, WHOLE) for name in ("batch", "heads", "tokens", "width")),
        *((name, View) for name in TEXTS),
        *((name, POINTER) for name in CHANNELS),
        *((name, View) for name in MADE),
        *((f"d{name}", View) for name in TEXTS),
        *((f"d{name}", POINTER) for name in CHANNELS),
    ]


def correction(
    k: Queries, slow: Queries, rate: Queries, decay: Channel, usual: Channel, erased: Channel, replaced: Channel
) -> tuple[Queries, Queries, Queries, Queries]:
    """The logarithms of what is kept, the keys, where the state is read and where that is moved to, in float32."""
    return _Correction.apply(k, slow, rate, decay, usual, erased, replaced)


class _Correction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        given = {
            name: laid_out(x) if x.ndim == 4 else x.contiguous()
            for name, x in zip((*TEXTS, *CHANNELS), inputs, strict=True)
        }
        ctx.save_for_backward(*given.values())
        made = {name: empty_beside(given["k"]) for name in MADE}
        _run(False, given | made)
        return tuple(made.values())

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip((*TEXTS, *CHANNELS), ctx.saved_tensors, strict=True))
        k = given["k"]
        given |= {name: laid_out(x) for name, x in zip(MADE, grad_outputs, strict=True)}
        made = {f"d{name}": empty_beside(k) for name in TEXTS}
        blocks = k.shape[0] * -(-k.shape[2] // BLOCK)
        sums = {f"d{name}": k.new_zeros(blocks, len(given[name])) for name in CHANNELS}
        _run(True, given | made | sums)
        return *made.values(), *(x.sum(0) for x in sums.values())


def _run(back: bool, tensors: dict[str, Tensor]) -> None:
    job = _Job(back, *tensors["k"].shape)
    for name, tensor in tensors.items():
        setattr(job, name, View.of(tensor) if tensor.ndim == 4 else tensor.data_ptr())
    run("correction", job)
