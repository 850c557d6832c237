"""The same as `tiles`, in C++ built on this machine."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.geometry import Geometry
from ordinate.native import attention, build
from ordinate.ops.blocks import blocks
from ordinate.ops.reach import first_keys
from ordinate.ops.tiles import masked_table
from ordinate.route import Call, Route, table_refused
from ordinate.shapes import Outputs

# with fewer pairs, over batch and heads, the steps before and after cost more than they save
PAIRS = 2**16


class Native(Route):
    """Tiles in C++, on CPUs: no bias, or one that depends on the distance alone, at the speed of matrix products.

    The source is built once by the machine's own C++ compiler, in some seconds, when the first call needs it, and
    kept in the user's cache folder ($XDG_CACHE_HOME or ~/.cache, then ordinate). ORDINATE_NATIVE=off forbids it.
    Scores, softmax and sums are held in float32. bfloat16 is multiplied as it is where the processor can; other
    16-bit types are widened. A sink is a key that all have seen before the others. Keys that weigh less than rounding
    does are left out (`ordinate.ops.reach`).
    """

    order = 200
    serves = frozenset({"cap", "sinks"})

    def refuses(self, call: Call) -> str | None:
        """Other devices and types, biases that are no table, dropout, small inputs, machines without a compiler."""
        if call.q.device.type != "cpu":
            return "it is made for CPUs"
        if torch.compiler.is_compiling():
            return "torch.compile cannot look into it"
        if call.q.dtype == torch.float64:
            return "it computes in float32"
        reason = table_refused(call)
        if reason is not None:
            return reason
        if call.dropout:
            return "it drops nothing"
        if 0 in call.q.shape or 0 in call.v.shape:
            return "a tensor is empty"
        # without a bias there is less to save
        fewest = PAIRS if "bias" in call.at.scheme.hooks else 4 * PAIRS
        if call.pairs < fewest:
            return f"there are fewer than {fewest} pairs"
        return build.reason("attention") or _unfit(call)

    def run(self, call: Call) -> Outputs:
        """One autograd function."""
        table = masked_table(call.at.table, call.where, call.q.shape[1], torch.float32)
        q, k, v = (_laid_out(x) for x in (call.q, call.k, call.v))
        sinks = None if call.formula.sinks is None else call.formula.sinks.float().contiguous()
        scoring = attention.Scoring(call.scale, call.formula.cap)
        out = _Native.apply(q, k, v, table, sinks, call.where, scoring)
        return out[..., : call.v.shape[3]].to(call.q.dtype)

    def bytes(self, call: Call) -> int:
        """For each thread a head of keys and values and the scores of a tile, and wider copies of 16-bit types."""
        size = _type(call.q).itemsize
        head = size * (call.k.shape[2] * (call.k.shape[3] + call.v.shape[3]) + attention.ROWS * attention.COLUMNS)
        softmax = 8 * math.prod(call.q.shape[:3])
        copies = 0 if size == call.q.element_size() else sum(size * x.numel() for x in (call.q, call.k, call.v))
        return torch.get_num_threads() * head + softmax + copies


class _Native(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        table: Tensor,
        sinks: Tensor | None,
        where: Geometry,
        scoring: attention.Scoring,
    ) -> Tensor:
        table, learned = table.contiguous(), ctx.needs_input_grad[3] or ctx.needs_input_grad[4]
        ctx.where, ctx.scoring, ctx.span = where, scoring, _span(q, k, table, where, scoring.scale)
        scoring = scoring._replace(sinks=sinks)
        out, softmax, lost = attention.forward(q, k, v, table, where, scoring, ctx.span, learned)
        # the way back reads the table in reverse only
        ctx.save_for_backward(q, k, v, table.flip(1), out, softmax, lost, sinks)
        return out

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        gradient, learned = _laid_out(grad_outputs[0]), ctx.needs_input_grad[3]
        *saved, sinks = ctx.saved_tensors
        scoring = ctx.scoring._replace(sinks=sinks)
        made = attention.backward(gradient, tuple(saved), ctx.where, scoring, ctx.span, learned)
        return *made, None, None


def _unfit(call: Call) -> str | None:
    """Why these numbers are none for C++, whose exponentials would make a number of what is none."""
    sinks = call.formula.sinks
    if sinks is not None and not sinks.isfinite().all():
        return "a sink is not finite"
    if not call.finite:
        return "q, k or v holds a number that is not finite"
    return None if call.steepest < torch.finfo(torch.float32).max else "scores may exceed what float32 holds"


def _span(q: Tensor, k: Tensor, table: Tensor, where: Geometry, scale: float) -> attention.Span:
    """The keys of each block of queries, without those that weigh nothing."""
    cuts = blocks(where, attention.ROWS)
    low = torch.tensor([cut.keys.start for cut in cuts]).expand(*q.shape[:2], -1)
    first = first_keys(q, k, table, where, scale, attention.ROWS)
    low = low.contiguous() if first is None else first.maximum(low)
    return low, torch.tensor([cut.keys.stop for cut in cuts])


def _type(x: Tensor) -> torch.dtype:
    exact = x.dtype == torch.bfloat16 and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return torch.bfloat16 if exact else torch.float32


def _laid_out(x: Tensor) -> Tensor:
    """In a type that is multiplied, its channels side by side, and in pairs if they are of 16 bits."""
    x = x.to(_type(x))
    if x.dtype == torch.bfloat16 and x.shape[-1] % 2:
        x = torch.nn.functional.pad(x, (0, 1))
    lies_well = x.stride(3) == 1 and x.stride(2) >= x.shape[3]
    return x if lies_well else x.clone(memory_format=torch.contiguous_format)
