"""Binding of the C++ recurrences of RWKV-6 and RWKV-7 (recurrence.cpp): one pass over time."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Outputs, Queries
from ordinate.core.tensors import contiguous_channels
from ordinate.ops.double_backward import gradients, in_one
from ordinate.ops.native.job import BOOL, POINTER, WHOLE, View, call_kernel, empty_token_major

Bonus = Float[Tensor, "h d"]
Matrices = Float[Tensor, "b h d e"]
# the same in PyTorch, for second derivatives: of the tensors that are given, in this order
Plain = Callable[..., tuple[Tensor, Tensor]]

# as in recurrence.cpp: columns of the narrowest panel, and tokens between two stored states
NARROW, CHUNK = 16, 32

# tensors with one row per token
_VIEWS = ("r", "w", "k", "v", "a", "b")
_GRADIENTS = ("dr", "dw", "dk", "dv", "da", "db")


class _Job(ctypes.Structure):
    # as in recurrence.cpp
    _fields_ = [
        ("back", BOOL),
        ("delta", BOOL),
        *((name, WHOLE) for name in ("batch", "heads", "tokens", "width", "depth")),
        *((name, View) for name in (*_VIEWS, "y")),
        *((name, POINTER) for name in ("bonus", "start", "end", "kept")),
        *((name, View) for name in ("gradient", *_GRADIENTS)),
        *((name, POINTER) for name in ("gradient_end", "dbonus", "dstart")),
    ]


def decaying_linear_attention(
    plain: Plain, r: Queries, k: Queries, v: Outputs, w: Queries, bonus: Bonus, start: Matrices
) -> tuple[Outputs, Matrices]:
    """Linear attention with decay (RWKV-6, see `ordinate.ops.decay`): outputs and final state, in float32."""
    return _recurrence(plain, r, w, k, v, None, None, bonus, start)


def delta_rule(
    plain: Plain, r: Queries, k: Queries, v: Outputs, w: Queries, seen_moved: tuple[Queries, Queries], start: Matrices
) -> tuple[Outputs, Matrices]:
    """Generalised delta rule (RWKV-7, see `ordinate.ops.delta_rule`): outputs and final state, in float32."""
    return _recurrence(plain, r, w, k, v, *seen_moved, None, start)


def _recurrence(plain: Plain, *inputs: Tensor | None) -> tuple[Outputs, Matrices]:
    learns = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    given = {name: x for name, x in zip((*_VIEWS, "bonus", "start"), inputs, strict=True) if x is not None}
    laid = (contiguous_channels(x) if name in _VIEWS else x.contiguous() for name, x in given.items())
    return _Recurrence.apply(plain, tuple(given), learns, *laid)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (names are not tensors)
    def forward(ctx: Any, plain: Plain, names: tuple[str, ...], learns: bool, *inputs: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        ctx.names, ctx.plain, tensors = names, plain, dict(zip(names, inputs, strict=True))
        tensors["y"] = empty_token_major(tensors["v"])
        tensors["end"] = torch.empty_like(tensors["start"])
        ctx.kept = _kept(tensors) if learns else None
        _run(False, tensors | ({} if ctx.kept is None else {"kept": ctx.kept}))
        return tensors["y"], tensors["end"]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        inputs, kept = ctx.saved_tensors, ctx.kept

        def fast(*upstream: Tensor | None) -> tuple[Tensor | None, ...]:
            return _gradients(dict(zip(ctx.names, inputs, strict=True)) | {"kept": kept}, *upstream)

        return None, None, None, *gradients(fast, in_one(ctx.plain), inputs, grad_outputs)


def _gradients(tensors: dict[str, Tensor], asked: Tensor | None, end: Tensor | None) -> tuple[Tensor | None, ...]:
    names = [name for name in tensors if name != "kept"]
    pairs = zip(_GRADIENTS, _VIEWS, strict=True)
    made = {name: empty_token_major(tensors[of]) for name, of in pairs if of in tensors}
    made["dstart"] = torch.empty_like(tensors["start"])
    if "bonus" in tensors:
        made["dbonus"] = tensors["start"].new_zeros(*tensors["start"].shape[:3])
    tensors["gradient"] = torch.zeros_like(tensors["v"]) if asked is None else contiguous_channels(asked)
    if end is not None:
        tensors["gradient_end"] = end.contiguous()
    _run(True, tensors | made)
    if "dbonus" in made:
        made["dbonus"] = made["dbonus"].sum(0)
    return tuple(made[f"d{name}"] for name in names)


def _kept(tensors: dict[str, Tensor]) -> Tensor:
    """Allocate the stored states, one per CHUNK tokens, from which the backward pass recomputes the others."""
    batch, heads, tokens, depth = tensors["v"].shape
    # padded to whole panels, which have 16, 32 or 64 columns
    widths = NARROW, 2 * NARROW, 4 * NARROW
    columns = next((width for width in widths if depth <= width), -(-depth // widths[-1]) * widths[-1])
    return tensors["v"].new_empty(batch, heads, -(-tokens // CHUNK), tensors["k"].shape[3], columns)


def _run(back: bool, tensors: dict[str, Tensor]) -> None:
    job = _Job(back, "a" in tensors, *tensors["k"].shape, tensors["v"].shape[3])
    call_kernel("recurrence", job, tensors)
