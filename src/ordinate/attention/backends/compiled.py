"""Attention inside `torch.compile`: a custom operator that selects another backend when the graph runs."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall, Backend, ScoreOptions, backends, offset_bias_unsupported
from ordinate.core.devices import on_cpu
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Outputs
from ordinate.schemes._scheme import Placed, Scheme

# with fewer query-key pairs, over batch and heads, compiled code is as fast
MIN_PAIRS = 2**16


class Compiled(Backend):
    """Custom operator that is opaque to torch.compile, on CPUs: no bias, or one that depends on the offset alone.

    When the graph runs, the operator calls the first other backend that supports the call, so data-dependent choices
    (such as the check for NaN) work as in eager mode. The bias is passed as a table by offset, so no queries x keys
    tensor is held. The backward pass recomputes the forward pass.
    """

    priority = 50
    supported_options = frozenset({"softcap", "sinks"})

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject eager calls, other devices, biases that depend on more than the offset, dropout, small inputs."""
        if not torch.compiler.is_compiling():
            return "the call is not inside torch.compile"
        if torch.compiler.is_exporting():
            return "an exported program has operations of PyTorch only"
        if not on_cpu(call.q):
            return "only CPUs are supported"
        if call.dropout:
            return "dropout is not supported"
        reason = offset_bias_unsupported(call)
        if reason is None and call.num_pairs < MIN_PAIRS:
            return f"there are fewer than {MIN_PAIRS} query-key pairs"
        return reason

    def run(self, call: AttentionCall) -> Outputs:
        """Call the C++ kernel as a custom operator, which torch.compile keeps whole."""
        where = call.where
        documents = [x for x in (where.q_document, where.k_document) if x is not None]
        sinks = [] if call.score_options.sinks is None else [call.score_options.sinks]
        # operator lists hold plain numbers, no None: 0 stands for no window and no soft cap
        structure = [int(where.is_causal), where.start, where.window or 0, len(sinks)]
        numbers = [call.scale, call.score_options.softcap or 0.0]
        return _attention(call.q, call.k, call.v, call.at.offset_table, [*sinks, *documents], structure, numbers)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Upper bound over the backends that may run: the larger workspace of `offset_bias` and `native`."""
        return max(backends()[name].workspace_bytes(call) for name in ("offset_bias", "native"))


@torch.library.custom_op("ordinate::attention", mutates_args=())
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    others: Sequence[Tensor],
    structure: Sequence[int],
    numbers: Sequence[float],
) -> Tensor:
    sinks, where = _unpack(q, k, others, structure)
    return _run(_call(q, k, v, _TableBias(table).at(where), sinks, numbers)).contiguous()


@torch.library.custom_op("ordinate::attention_backward", mutates_args=())
def _attention_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    others: Sequence[Tensor],
    structure: Sequence[int],
    numbers: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    sinks, where = _unpack(q, k, others, structure)

    def gradients() -> list[Tensor]:
        leaf_q, leaf_k, leaf_v = (x.detach().requires_grad_() for x in (q, k, v))
        bias, sunk = (None if x is None else x.detach().requires_grad_() for x in (table, sinks))
        out = _run(_call(leaf_q, leaf_k, leaf_v, _TableBias(bias).at(where), sunk, numbers))
        leaves = [leaf_q, leaf_k, leaf_v, bias, sunk]
        found = iter(torch.autograd.grad(out, [x for x in leaves if x is not None], gradient))
        # an operator must return a tensor for each output: an empty one stands for None
        return [q.new_empty(0) if x is None else next(found).contiguous() for x in leaves]

    # inside an operator autograd is disabled, but only in the calling thread
    with ThreadPoolExecutor(1) as other:
        made = other.submit(gradients).result()
    return made[0], made[1], made[2], made[3], made[4]


@_attention.register_fake
def _shaped(q: Tensor, k: Tensor, v: Tensor, *_: object) -> Tensor:
    return q.new_empty(*q.shape[:3], v.shape[3])


@_attention_backward.register_fake
def _shaped_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    others: Sequence[Tensor],
    structure: Sequence[int],
    numbers: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    sinks = others[0] if structure[3] else None
    made = [q.new_empty(0) if x is None else x.new_empty(x.shape) for x in (q, k, v, table, sinks)]
    return made[0], made[1], made[2], made[3], made[4]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, others, ctx.structure, ctx.numbers = inputs
    ctx.save_for_backward(*tensors, *others)


def _back(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    q, k, v, table, *others = ctx.saved_tensors
    made = _attention_backward(gradient, q, k, v, table, others, ctx.structure, ctx.numbers)
    sunk = ctx.structure[3]
    to_others = [*made[4:][:sunk], *(None for _ in others[sunk:])]
    return *made[:3], None if table is None else made[3], to_others, None, None


_attention.register_autograd(_back, setup_context=_save)


def _run(call: AttentionCall) -> Outputs:
    return next(backend for backend in backends().values() if backend.skipped_reason(call) is None).run(call)


def _call(
    q: Tensor, k: Tensor, v: Tensor, at: Placed, sinks: Tensor | None, numbers: Sequence[float]
) -> AttentionCall:
    return AttentionCall(q, k, v, at, numbers[0], 0.0, ScoreOptions(numbers[1] or None, sinks))


def _unpack(
    q: Tensor, k: Tensor, others: Sequence[Tensor], structure: Sequence[int]
) -> tuple[Tensor | None, Geometry]:
    """Restore the sinks and the geometry from operator arguments.

    Positions are replaced by indices in memory order, which give the same offsets; the bias table needs no more.
    """
    is_causal, start, window, sunk = structure
    q_pos, k_pos = (
        torch.arange(first, first + x.shape[2], device=x.device)[None, :, None] for x, first in ((q, start), (k, 0))
    )
    q_document, k_document = others[sunk:] or (None, None)
    where = Geometry(q_pos, k_pos, bool(is_causal), start, window or None, q_document, k_document, consecutive=True)
    return others[0] if sunk else None, where


class _TableBias(Scheme):
    """Bias read from a table by offset.

    Args:
        table: entry x is for keys x - queries + 1 tokens after the query; None: no bias.
    """

    shift_invariant = True

    def __init__(self, table: Tensor | None) -> None:
        super().__init__()
        self.table = table

    @property
    def hooks(self) -> tuple[str, ...]:
        return () if self.table is None else ("bias",)

    def bias(self, where: Geometry) -> Bias | None:
        if self.table is None:
            return None
        # `origin` is the index of offset 0, fixed for the whole geometry; `where` may be a block of it
        return self.table[:, self.origin - where.offset[0, ..., 0]][None]

    def at(self, where: Geometry) -> Placed:
        self.origin = where.shape[0] - 1 + where.start
        return super().at(where)
