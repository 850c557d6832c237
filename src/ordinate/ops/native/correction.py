"""Binding of the C++ state update parameters of RWKV-7 (correction.cpp, see `ordinate.ops.correction`)."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Queries
from ordinate.core.tensors import contiguous_channels
from ordinate.ops.double_backward import gradients, in_one
from ordinate.ops.native.job import BOOL, POINTER, WHOLE, View, call_kernel, empty_token_major

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
    plain: Callable[..., tuple[Tensor, ...]], texts: tuple[Queries, Queries, Queries], channels: tuple[Channel, ...]
) -> tuple[Queries, Queries, Queries, Queries]:
    """Return log decays, keys, and the keys at which the state is read and written by the delta rule, in float32.

    Args:
        plain: the same of all the tensors in PyTorch, for second derivatives.
        texts: k, slow and rate.
        channels: decay, usual, erased and replaced.
    """
    laid = (contiguous_channels(x) for x in texts)
    return _Correction.apply(plain, *laid, *(x.contiguous() for x in channels))


class _Correction(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a function is not a tensor)
    def forward(ctx: Any, plain: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip((*TEXTS, *CHANNELS), inputs, strict=True))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        ctx.plain = plain
        made = {name: empty_token_major(given["k"]) for name in MADE}
        _run(False, given | made)
        return tuple(made.values())

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        return None, *gradients(partial(_gradients, inputs), in_one(ctx.plain), inputs, grad_outputs)


def _gradients(inputs: tuple[Tensor, ...], *upstream: Tensor | None) -> tuple[Tensor, ...]:
    given = dict(zip((*TEXTS, *CHANNELS), inputs, strict=True))
    k = given["k"]
    above = (torch.zeros_like(k) if x is None else x for x in upstream)
    given |= {name: contiguous_channels(x) for name, x in zip(MADE, above, strict=True)}
    made = {f"d{name}": empty_token_major(k) for name in TEXTS}
    blocks = k.shape[0] * -(-k.shape[2] // BLOCK)
    sums = {f"d{name}": k.new_zeros(blocks, len(given[name])) for name in CHANNELS}
    _run(True, given | made | sums)
    return *made.values(), *(x.sum(0) for x in sums.values())


def _run(back: bool, tensors: dict[str, Tensor]) -> None:
    job = _Job(back, *tensors["k"].shape)
    call_kernel("correction", job, tensors)
