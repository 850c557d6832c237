"""Binding of the C++ state update parameters of RWKV-7 (correction.cpp, see `ordinate.ops.correction`)."""

import ctypes
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.core.shapes import Queries
from ordinate.ops.native.job import BOOL, POINTER, WHOLE, View, call_kernel, contiguous_channels, empty_token_major

# as in correction.cpp: tokens per task, and the largest head width
BLOCK, MAX_HEAD_WIDTH = 128, 256
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


def state_update(
    k: Queries, slow: Queries, rate: Queries, decay: Channel, usual: Channel, erased: Channel, replaced: Channel
) -> tuple[Queries, Queries, Queries, Queries]:
    """Return log decays, keys, and the keys at which the state is read and written by the delta rule, in float32."""
    return _Correction.apply(k, slow, rate, decay, usual, erased, replaced)


class _Correction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        given = {
            name: contiguous_channels(x) if x.ndim == 4 else x.contiguous()
            for name, x in zip((*TEXTS, *CHANNELS), inputs, strict=True)
        }
        ctx.save_for_backward(*given.values())
        made = {name: empty_token_major(given["k"]) for name in MADE}
        _run(False, given | made)
        return tuple(made.values())

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip((*TEXTS, *CHANNELS), ctx.saved_tensors, strict=True))
        k = given["k"]
        given |= {name: contiguous_channels(x) for name, x in zip(MADE, grad_outputs, strict=True)}
        made = {f"d{name}": empty_token_major(k) for name in TEXTS}
        blocks = k.shape[0] * -(-k.shape[2] // BLOCK)
        sums = {f"d{name}": k.new_zeros(blocks, len(given[name])) for name in CHANNELS}
        _run(True, given | made | sums)
        return *made.values(), *(x.sum(0) for x in sums.values())


def _run(back: bool, tensors: dict[str, Tensor]) -> None:
    job = _Job(back, *tensors["k"].shape)
    for name, tensor in tensors.items():
        setattr(job, name, View.of(tensor) if tensor.ndim == 4 else tensor.data_ptr())
    call_kernel("correction", job)
