"""Tiled attention in C++, built on this machine: no bias, or one that depends on the offset alone; on CPUs."""

import math
from typing import Any

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall, Backend, offset_bias_unsupported
from ordinate.attention._double_backward import TableCall, table_formula
from ordinate.core.devices import on_cpu
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Outputs
from ordinate.ops.blocks import query_blocks
from ordinate.ops.decay_cutoff import first_relevant_keys
from ordinate.ops.double_backward import gradients
from ordinate.ops.native import attention, build
from ordinate.ops.offset_bias_attention import masked_table

# with fewer query-key pairs, over batch and heads, the overhead exceeds the gain
MIN_PAIRS = 2**16


class Native(Backend):
    """Tiled attention with an online softmax in C++, on CPUs, for biases that depend on the offset alone, or none.

    The source is compiled once by the machine's C++ compiler, in some seconds, when first needed, and cached in the
    user's cache folder ($XDG_CACHE_HOME or ~/.cache, then ordinate). ORDINATE_NATIVE=off disables it. Scores, softmax
    and sums are float32. bfloat16 is multiplied natively where the processor supports it, and else converted tile by
    tile; float16 is converted to float32 as a whole. A sink is a key that the running softmax starts from. Keys whose
    total weight is below rounding are skipped (`ordinate.ops.decay_cutoff`).
    """

    priority = 200
    supported_options = frozenset({"softcap", "sinks"})

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices, float64, other biases, dropout, small inputs, and machines without a compiler."""
        if not on_cpu(call.q):
            return "only CPUs are supported"
        if torch.compiler.is_compiling():
            return "torch.compile cannot trace it"
        if call.q.dtype == torch.float64:
            return "float64 is not supported"
        reason = offset_bias_unsupported(call)
        if reason is not None:
            return reason
        if call.dropout:
            return "dropout is not supported"
        if 0 in call.q.shape or 0 in call.v.shape:
            return "a tensor is empty"
        # without a bias there is less to save
        fewest = MIN_PAIRS if "bias" in call.at.scheme.hooks else 4 * MIN_PAIRS
        if call.num_pairs < fewest:
            return f"there are fewer than {fewest} query-key pairs"
        return build.unavailable_reason("attention") or _unfit(call)

    def run(self, call: AttentionCall) -> Outputs:
        """Apply the autograd function around the C++ kernels."""
        table = masked_table(call.at.offset_table, call.where, call.q.shape[1], torch.float32)
        q, k, v = (_laid_out(x) for x in (call.q, call.k, call.v))
        sinks = None if call.score_options.sinks is None else call.score_options.sinks.float().contiguous()
        scoring = attention.Scoring(call.scale, call.score_options.softcap)
        out = _Native.apply(q, k, v, table, sinks, call.where, scoring)
        return out[..., : call.v.shape[3]].to(call.q.dtype)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Buffers in C++, float32 copies of other types with their output, and tables of biases.

            threads [keys (d + e) size + 4 tile + size tile if 16 bits + 4 rows e]
            + 8 queries + 12 heads (queries + keys) + copies

        The size is that of an operand of the products.

        With fewer heads than threads, heads are split into blocks of queries; a thread without any holds nothing.
        """
        type, (queries, keys) = _type(call.q), call.where.shape
        size = type.itemsize if attention.multiplies(type) else 4
        heads, wide = math.prod(call.q.shape[:2]), call.v.shape[3]
        tile = attention.ROWS * attention.COLUMNS
        buffers = size * keys * (call.k.shape[3] + wide) + (4 if size == 4 else 6) * tile + 4 * attention.ROWS * wide
        blocks = 1 if heads >= torch.get_num_threads() else -(-queries // attention.ROWS)
        copies = 0 if type == call.q.dtype else sum(size * x.numel() for x in (call.q, call.k, call.v))
        copies += size * heads * queries * wide if copies else 0
        statistics = 8 * heads * queries + 12 * call.q.shape[1] * (queries + keys)
        return min(torch.get_num_threads(), heads * blocks) * buffers + statistics + copies


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
        given, learned = table, ctx.needs_input_grad[3] or ctx.needs_input_grad[4]
        table = table.contiguous()
        ctx.where, ctx.scoring, ctx.span = where, scoring, _span(q, k, table, where, scoring.scale)
        scoring = scoring._replace(sinks=sinks)
        out, softmax, lost = attention.forward(q, k, v, table, where, scoring, ctx.span, learned)
        ctx.save_for_backward(q, k, v, given, sinks, out, softmax, lost)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        *inputs, out, softmax, lost = ctx.saved_tensors

        def fast(gradient: Tensor) -> tuple[Tensor | None, ...]:
            q, k, v, table, sinks = inputs
            scoring, learned = ctx.scoring._replace(sinks=sinks), ctx.needs_input_grad[3]
            # the backward kernel has keys in rows, so it reads the table in reverse only
            saved = q, k, v, table.flip(1), out, softmax, lost
            return attention.backward(_laid_out(gradient), saved, ctx.where, scoring, ctx.span, learned)

        plain = table_formula(TableCall(ctx.where, ctx.scoring.scale, ctx.scoring.softcap))
        return *gradients(fast, plain, inputs, grad_outputs), None, None


def _unfit(call: AttentionCall) -> str | None:
    """Return why the values are not supported: the fast exponentials in C++ would turn NaN into a finite number."""
    sinks = call.score_options.sinks
    if sinks is not None and not sinks.isfinite().all():
        return "a sink is not finite"
    if not call.is_finite:
        return "q, k or v contains NaN or infinity"
    return None if call.score_bound < torch.finfo(torch.float32).max else "scores may overflow float32"


def _span(q: Tensor, k: Tensor, table: Tensor, where: Geometry, scale: float) -> attention.KeyRanges:
    """Return the range of keys of each block of queries, without keys of negligible weight."""
    cuts = query_blocks(where, attention.ROWS)
    low = torch.tensor([cut.keys.start for cut in cuts]).expand(*q.shape[:2], -1)
    first = first_relevant_keys(q, k, table, where, scale, attention.ROWS)
    low = low.contiguous() if first is None else first.maximum(low)
    return low, torch.tensor([cut.keys.stop for cut in cuts])


def _type(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype == torch.bfloat16 else torch.float32


def _laid_out(x: Tensor) -> Tensor:
    """Convert to a dtype that the kernel reads, with contiguous channels, an even number for products in bfloat16."""
    x = x.to(_type(x))
    if x.dtype == torch.bfloat16 and attention.multiplies(x.dtype) and x.shape[-1] % 2:
        x = torch.nn.functional.pad(x, (0, 1))
    lies_well = x.stride(3) == 1 and x.stride(2) >= x.shape[3]
    return x if lies_well else x.clone(memory_format=torch.contiguous_format)
