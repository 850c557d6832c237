"""Attention with a varied formula (soft cap, sinks, other weights than softmax), in blocks of query rows."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall, Backend, finite_attention
from ordinate.attention._block_gradients import block_gradients
from ordinate.attention._double_backward import SchemeFormula, scheme_formula, undeclared_reason
from ordinate.attention._workspace import row_workspace
from ordinate.core.devices import on_gpu
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.replaced_parameters import replaced
from ordinate.core.shapes import Outputs
from ordinate.ops.blocks import QueryBlock, largest_blocks, query_blocks
from ordinate.ops.double_backward import gradients

# scores per block
MAX_BLOCK_SCORES = 2**22
# largest mask of PyTorch's attention on a GPU, beyond which the blocks here are computed, slower [numbers]
MAX_MASK = 2**30


class CustomFormula(Backend):
    """Varied attention formula in blocks of query rows, for any scheme: no queries x keys tensor is held.

    On GPUs also the standard formula, where PyTorch's attention cannot compute it, or needs a mask of more than 2^30
    numbers.

    The backward pass recomputes each block. The scheme is evaluated for the rows of a block and the keys from the
    first to the last that causality and window leave to any of them.
    """

    priority = 410
    supported_options = frozenset({"softcap", "sinks", "normaliser"})

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject the standard formula, dropout, calls that fit in one block, and non-finite inputs."""
        if not (call.score_options.in_use or _outgrows_masks(call)):
            return "the formula is the standard one, which other backends compute faster"
        if torch.compiler.is_compiling():
            return "torch.compile cannot trace it"
        if call.dropout:
            return "dropout is not supported"
        if call.num_pairs <= MAX_BLOCK_SCORES:
            return f"there are no more than {MAX_BLOCK_SCORES} scores, which fit in one block"
        return call.overflow_reason or undeclared_reason(call)

    def run(self, call: AttentionCall) -> Outputs:
        """Apply the blockwise autograd function."""
        sinks = [] if call.score_options.sinks is None else [call.score_options.sinks]
        return _Blocks.apply(call, call.q, call.k, call.v, *sinks, *call.at.scheme.parameters())

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Scores, masks and weights of the largest block, beside the outputs of the other blocks.

            max(largest block, output) + output of the other blocks

        The blocks' outputs are held until they are joined. The largest block is extended from its first rows.
        """

        def held(cut: QueryBlock) -> int:
            k, v, at = call.k[:, :, cut.keys], call.v[:, :, cut.keys], call.at.block(cut.rows, cut.keys)
            return row_workspace(changed(call, q=call.q[:, :, cut.rows], k=k, v=v, at=at), finite_attention)

        out = math.prod(call.q.shape[:2]) * call.v.shape[3] * call.v.element_size()
        blocks = _blocks(call.where, call.q)
        # as inside the autograd function, which keeps its inputs only
        with torch.no_grad():
            return max(*map(held, largest_blocks(blocks)), out * call.where.shape[0])


def _outgrows_masks(call: AttentionCall) -> bool:
    """Whether on a GPU PyTorch's attention cannot compute the call, or only with a very large mask.

    On CPUs other backends are there for these calls.
    """
    hooks = set(call.at.scheme.hooks)
    if not on_gpu(call.q) or not hooks & {"score", "bias", "content_bias", "value_bias"}:
        return False
    # a bias by content has its own mask for each sequence, one by position serves all
    batch = call.q.shape[0] if "content_bias" in hooks else call.where.batch_size
    large = batch * call.q.shape[1] * math.prod(call.where.shape) > MAX_MASK
    return large or bool(hooks & {"score", "value_bias"})


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: AttentionCall, q: Tensor, k: Tensor, v: Tensor, *learned: Tensor) -> Tensor:
        ctx.at, ctx.scale, ctx.formula = call.at, call.scale, changed(call.score_options, sinks=None)
        ctx.sinks = call.score_options.sinks is not None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, *learned)
        parts = (_rows(ctx, cut, q, k, v, *learned[: ctx.sinks]) for cut in _blocks(call.where, q))
        return torch.cat(list(parts), 2)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        plain = scheme_formula(ctx.at, ctx.scale, ctx.formula, ctx.sinks)
        inputs, own, formula = ctx.saved_tensors, 3 + ctx.sinks, SchemeFormula(ctx.at.scheme)

        def compute(cut: QueryBlock, leaves: Sequence[Any]) -> Outputs:
            part = ctx.at.block(cut.rows, cut.keys), ctx.scale, ctx.formula
            return replaced(formula, leaves[own:]).forward(part, *leaves[:own])

        def fast(gradient: Tensor) -> list[Tensor | None]:
            return block_gradients(inputs, gradient, _blocks(ctx.at.where, inputs[0]), compute)

        return None, *gradients(fast, plain, inputs, grad_outputs)


def _rows(ctx: Any, cut: QueryBlock, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None) -> Outputs:
    # a function, so that nothing of a block is held while the next one is computed
    own = q[:, :, cut.rows], k[:, :, cut.keys], v[:, :, cut.keys]
    at, options = ctx.at.block(cut.rows, cut.keys), changed(ctx.formula, sinks=sinks)
    return finite_attention(AttentionCall(*own, at, ctx.scale, 0.0, options))


def _blocks(where: Geometry, q: Tensor) -> list[QueryBlock]:
    """Blocks of rows, each with the range of keys that it may attend to."""
    return query_blocks(where, max(1, MAX_BLOCK_SCORES // max(1, q.shape[0] * q.shape[1] * where.shape[1])))
