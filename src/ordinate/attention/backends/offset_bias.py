"""Attention in blocks of query rows in PyTorch, with no bias or one that depends on the offset alone; on CPUs."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall, Backend, offset_bias_unsupported
from ordinate.attention._double_backward import TableCall, table_formula
from ordinate.attention._few_pairs import few_head_pairs
from ordinate.attention._workspace import peak_and_rest, run_workspace
from ordinate.core.devices import on_cpu
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import OffsetTable, Outputs
from ordinate.ops import offset_bias_attention, offset_bias_fused, offset_bias_tiles
from ordinate.ops.double_backward import Tensors, gradients
from ordinate.ops.matmul import has_512_bit_units, onednn_is_faster
from ordinate.schemes._held import apart

# with fewer query-key pairs in a head the overhead exceeds the gain, which is smaller without a bias
MIN_PAIRS = 2**16
# where PyTorch's own attention, with the bias as a tensor, is fast: it computes future keys, too
MIN_CAUSAL_PAIRS, MIN_OTHER_PAIRS = 3 * 2**16, 2**20


def sdpa_is_slow() -> bool:
    """Whether PyTorch's own attention multiplies at half of this processor's speed: on AMD's with 512-bit units."""
    return onednn_is_faster() and has_512_bit_units()


class OffsetBias(Backend):
    """Attention in blocks of query rows in plain PyTorch, on CPUs; the bias and its gradient cost next to nothing.

    A bias that depends on the offset alone is read from a table as a strided view, and its gradient is summed along
    diagonals. Memory is that of one block of rows, never queries x keys; the backward pass draws dropout masks again
    from their seed. Computed in float32 at least.
    On AMD processors with 512-bit units (Zen 5) oneDNN multiplies twice as fast as PyTorch's default, and this is
    faster for attention without a bias, too.
    """

    priority = 300

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices, biases that depend on more than the offset, small inputs, and non-finite numbers."""
        if not on_cpu(call.q):
            return "only CPUs are supported"
        if torch.compiler.is_compiling():
            return "torch.compile cannot trace it"
        if 0 in call.q.shape or 0 in call.v.shape:
            return "a tensor is empty"
        reason = offset_bias_unsupported(call)
        if reason is not None:
            return reason
        biased = "bias" in call.at.scheme.hooks
        fewest = MIN_PAIRS if biased else 4 * MIN_PAIRS
        if math.prod(call.where.shape) < fewest:
            return f"there are fewer than {fewest} query-key pairs in a head"
        if call.at.offset_table is not None and bool(call.at.offset_table.isneginf().any()):
            return "a bias of -inf may hide all keys from a query"
        if not biased and not sdpa_is_slow():
            return "without a bias PyTorch's own attention is as fast on this processor"
        return call.overflow_reason

    def slower_reason(self, call: AttentionCall) -> str | None:
        """Leave short texts with a bias to PyTorch, where its own attention is fast."""
        if torch.compiler.is_compiling() or "bias" not in call.at.scheme.hooks or sdpa_is_slow():
            return None
        return few_head_pairs(call, MIN_CAUSAL_PAIRS if call.where.is_causal else MIN_OTHER_PAIRS)

    def run(self, call: AttentionCall) -> Outputs:
        """Apply the blockwise autograd function."""
        table = self._table(call)
        seed = int(torch.randint(2**62, (), device="cpu")) if call.dropout else 0
        drop = offset_bias_attention.Dropout(call.dropout, seed) if call.dropout else None
        inputs = call.q, call.k, call.v, table, call.where, call.scale
        return _Fused.apply(*inputs) if _is_fused(call, table) else _Tiles.apply(*inputs, drop)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """What is held while two heads, or a block of a part, are computed, or while negligible keys are looked for.

        It computes these, with the tables of all heads, and looks for these keys.
        """
        # a copy, so that the table is made again below
        copied = changed(call, at=apart(call.at))
        return self._fused_workspace(call) if _is_fused(call, self._table(copied)) else self._tiled_workspace(call)

    def _fused_workspace(self, call: AttentionCall) -> int:
        setting = call.where, call.scale

        def part(table: OffsetTable) -> offset_bias_fused.Part:
            return offset_bias_fused.largest_part(call.q, call.k, table, *setting)

        def largest_blocks() -> Outputs:
            # keeps the table without mask, as the scheme of the call does
            own = changed(call, at=apart(call.at))
            table = self._table(own)
            with torch.no_grad():
                # looked for when the output is there
                only = (part(table) for _ in range(1))
                return offset_bias_fused.forward((call.q, call.k, call.v, table), *setting, only)[0]

        with torch.no_grad():
            blocks = part(self._table(changed(call, at=apart(call.at)))).blocks
        return run_workspace(largest_blocks, max(block.size[0] for block in blocks))

    def _tiled_workspace(self, call: AttentionCall) -> int:
        found: list[offset_bias_attention.HeadCuts] = []

        def looked_for() -> tuple[Any, ...]:
            table = self._table(changed(call, at=apart(call.at)))
            with torch.no_grad():
                found.append(offset_bias_attention.head_cuts(call.q, call.k, table, call.where, call.scale))
            return table, found[0]

        queries = call.where.shape[0]
        most, _ = peak_and_rest(looked_for, queries)
        # of one key head, or two: those with the most keys that are not negligible
        row, head = found[0].largest
        count = min(2, call.k.shape[1]) if call.groups == 1 else 1
        first = min(head // call.groups, call.k.shape[1] - count)
        held, asked = slice(first, first + count), slice(first * call.groups, (first + count) * call.groups)
        others = (call.q.shape[:2].numel() - count * call.groups) * queries * call.v.shape[3]
        at = apart(call.at)

        def some_heads() -> Outputs:
            table = self._table(changed(call, at=at))
            q, k, v = call.q[row, asked][None], call.k[row, held][None], call.v[row, held][None]
            drop = offset_bias_attention.Dropout(call.dropout, 0) if call.dropout else None
            # the rest of the output, which is there from the first head on
            rest = call.q.new_empty(others)
            with torch.no_grad():
                out = offset_bias_attention.forward(q, k, v, table[asked], call.where, call.scale, drop)
            del rest
            return out

        return max(most, run_workspace(some_heads, queries) - others * call.q.element_size())

    def _table(self, call: AttentionCall) -> OffsetTable:
        wide = torch.promote_types(call.q.dtype, torch.float32)
        return offset_bias_attention.masked_table(call.at.offset_table, call.where, call.q.shape[1], wide)


def _is_fused(call: AttentionCall, table: OffsetTable) -> bool:
    """Whether PyTorch's fused kernel is faster, which has no dropout and no gradient of the table."""
    learned = torch.is_grad_enabled() and any(x.requires_grad for x in (call.q, call.k, call.v, table))
    if call.dropout or (learned and offset_bias_tiles.trains_faster(call.q)):
        return False
    return offset_bias_fused.is_faster(call.q, call.v)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, where: Geometry, scale: float) -> Tensor:
        ctx.set_materialize_grads(False)
        out, lse = offset_bias_fused.forward((q, k, v, table), where, scale)
        ctx.save_for_backward(q, k, v, table, *(() if ctx.needs_input_grad[3] else (out, lse)))
        ctx.where, ctx.scale = where, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        q, k, v, table, *results = ctx.saved_tensors
        inputs, setting = (q, k, v, table), (ctx.where, ctx.scale)

        def fast(gradient: Tensor) -> tuple[Tensor | None, ...]:
            # the kernel has no gradient of the table
            if not results or not offset_bias_fused.is_accurate(results[1]):
                return offset_bias_attention.backward(gradient, inputs, *setting, ctx.needs_input_grad[3])
            out, lse = results
            return *offset_bias_fused.backward(gradient, inputs, (out, lse), *setting), None

        return *gradients(fast, table_formula(TableCall(*setting)), inputs, grad_outputs), None, None


class _Tiles(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        table: Tensor,
        where: Geometry,
        scale: float,
        drop: offset_bias_attention.Dropout | None,
    ) -> Tensor:
        ctx.set_materialize_grads(False)
        sums = offset_bias_attention.RowSums.empty(q) if offset_bias_tiles.is_faster(q) else None
        out = offset_bias_attention.forward(q, k, v, table, where, scale, drop, sums)
        ctx.save_for_backward(q, k, v, table, *(() if sums is None else (out, *sums)))
        ctx.where, ctx.scale, ctx.drop = where, scale, drop
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        q, k, v, table, *results = ctx.saved_tensors
        inputs, setting = (q, k, v, table), (ctx.where, ctx.scale)

        def fast(gradient: Tensor) -> tuple[Tensor | None, ...]:
            rest = *setting, ctx.needs_input_grad[3], ctx.drop
            if not results:
                return offset_bias_attention.backward(gradient, inputs, *rest)
            out, *sums = results
            return offset_bias_tiles.backward(gradient, inputs, (out, offset_bias_attention.RowSums(*sums)), *rest)

        def plain(given: Tensors, upstream: Tensors) -> Iterable[tuple[Tensors, Tensors]]:
            factors = ctx.drop and offset_bias_attention.dropout_factors(inputs, *setting, ctx.drop)
            return table_formula(TableCall(*setting, factors=factors))(given, upstream)

        return *gradients(fast, plain, inputs, grad_outputs), None, None, None
