"""Binding of the C++ causal attention by random features (performer.cpp)."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
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

# as in performer.cpp: tokens per chunk, and columns per vector
CHUNK, LANES = 64, 16
Directions = Float[Tensor, "directions d"]
Sums = Float[Tensor, "b h m columns"]
Peaks = Float[Tensor, "b h"]
Plain = Callable[[Queries, Queries, Outputs, Sums], tuple[Outputs, Sums, Peaks, Tensor]]


class _Job(ctypes.Structure):
    # as in performer.cpp
    _fields_ = [
        ("back", BOOL),
        ("mirrored", BOOL),
        *((name, WHOLE) for name in ("batch", "heads", "tokens", "width", "depth", "directions")),
        ("scale", NUMBER),
        *((name, View) for name in ("q", "k", "v", "out")),
        *((name, POINTER) for name in ("across", "down", "real", "start", "end", "peaks", "shares", "kept")),
        *((name, View) for name in ("gradient", "dq", "dk", "dv")),
        *((name, POINTER) for name in ("gradient_end", "dstart")),
    ]


def performer_attention(
    given: tuple[Queries, Queries, Outputs],
    directions: Directions,
    scale: float,
    mirrored: bool,
    real: Bool[Tensor, "b n"] | None,
    before: tuple[Sums, Peaks],
    plain: Plain,
) -> tuple[Outputs, Sums, Peaks, Float[Tensor, "b h n"]]:
    """Causal attention by exponential random features: output, state and peak, inverse denominators, in float32.

    Args:
        given: queries, keys and values, with equal numbers of heads.
        directions: random directions of the features, without the scale.
        scale: multiplies queries and keys.
        mirrored: use each direction and its negative.
        real: False at masked keys.
        before: initial state: sums of weighted values and of weights, divided by e^peak, and the peak.
        plain: the same of q, k, v and the sums in PyTorch, for second derivatives.
    """
    sums, peak = before
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (*given, sums))
    setting = learns, scale, mirrored, plain
    laid = (contiguous_channels(x) for x in given)
    return _Performed.apply(setting, directions * scale, real, peak, *laid, sums.contiguous())


class _Performed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        setting: tuple[bool, float, bool, Plain],
        directions: Tensor,
        real: Tensor | None,
        peak: Tensor,
        *inputs: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        learns, scale, mirrored, ctx.plain = setting
        q, k, v, start = inputs
        chunks = -(-q.shape[2] // CHUNK)
        peaks = q.new_empty(*peak.shape, chunks + 1)
        peaks[..., 0] = peak
        tensors = {"q": q, "k": k, "v": v, "start": start}
        tensors |= {"across": directions.t().contiguous(), "down": directions.contiguous(), "peaks": peaks}
        tensors |= {} if real is None else {"real": real.contiguous()}
        tensors["out"] = empty_token_major(v)
        tensors["shares"] = q.new_empty(q.shape[:3])
        if learns:
            columns = -(-start.shape[3] // LANES) * LANES
            tensors["kept"] = q.new_empty(*q.shape[:2], chunks, start.shape[2], columns)
        end = torch.empty_like(tensors["start"])
        ctx.scale, ctx.mirrored, ctx.names = scale, mirrored, tuple(tensors)
        _run(False, scale, mirrored, tensors | {"end": end})
        ctx.save_for_backward(*tensors.values())
        last = peaks[..., -1].clone()
        ctx.mark_non_differentiable(last, tensors["shares"])
        return tensors["out"], end, last, tensors["shares"]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        saved, setting = ctx.saved_tensors, (ctx.scale, ctx.mirrored)
        fast = partial(_gradients, dict(zip(ctx.names, saved, strict=True)), setting)
        last = saved[ctx.names.index("peaks")][..., -1]

        def plain(q: Tensor, k: Tensor, v: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
            out, end, peak, _ = ctx.plain(q, k, v, start)
            # the final state is divided by e^peak of the kernel, which may differ in rounding
            return out, end * (peak - last).exp()[..., None, None]

        return None, None, None, None, *gradients(fast, in_one(plain), saved[:4], grad_outputs[:2])


def _gradients(
    tensors: dict[str, Tensor], setting: tuple[float, bool], asked: Tensor | None, end: Tensor | None
) -> tuple[Tensor, ...]:
    tensors = dict(tensors)
    tensors["gradient"] = torch.zeros_like(tensors["out"]) if asked is None else contiguous_channels(asked)
    if end is not None:
        tensors["gradient_end"] = end.contiguous()
    made = {f"d{name}": empty_token_major(tensors[name]) for name in ("q", "k", "v")}
    made["dstart"] = torch.empty_like(tensors["start"])
    _run(True, *setting, tensors | made)
    return tuple(made.values())


def _run(back: bool, scale: float, mirrored: bool, tensors: dict[str, Tensor]) -> None:
    job = _Job(back, mirrored, *tensors["q"].shape, tensors["v"].shape[3], len(tensors["down"]), scale)
    call_kernel("performer", job, tensors)
