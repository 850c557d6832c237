"""Attention with a varied formula (soft cap, sinks, other weights than softmax), in blocks of query rows."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall, Backend, ScoreOptions, finite_attention
from ordinate.attention._double_backward import SchemeFormula, scheme_formula, undeclared_reason
from ordinate.attention._workspace import row_workspace
from ordinate.core.devices import on_gpu
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.replaced_parameters import replaced
from ordinate.core.shapes import Outputs
from ordinate.ops.blocks import QueryBlock, largest_blocks, query_blocks
from ordinate.ops.double_backward import gradients
from ordinate.schemes._scheme import Placed

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
        blocks = query_blocks(call.where, _block_rows(call.where, call.q))
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
        return torch.cat([_plain(part, *_cut(part, q, k, v), *learned[: ctx.sinks]) for part in _parts(ctx, q)], 2)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        plain = scheme_formula(ctx.at, ctx.scale, ctx.formula, ctx.sinks)
        inputs = ctx.saved_tensors
        return None, *gradients(lambda gradient: _gradients(ctx, inputs, gradient), plain, inputs, grad_outputs)


def _gradients(ctx: Any, inputs: tuple[Tensor, ...], gradient: Tensor) -> list[Tensor]:
    """Return the gradient of each input; each block is recomputed."""
    q, k, v, *learned = inputs
    wide = [torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v, *learned)]
    formula, own = SchemeFormula(ctx.at.scheme), 3 + ctx.sinks
    for part in _parts(ctx, q):
        rows, keys, *_ = part
        leaves = [x.detach().requires_grad_() for x in (*_cut(part, q, k, v), *learned)]
        with torch.enable_grad():
            out = replaced(formula, leaves[own:]).forward(part[2:], *leaves[:own])
            slopes = torch.autograd.grad(out, leaves, gradient[:, :, rows], allow_unused=True)
        # views into the float32 sums: blocks overlap in keys, so gradients accumulate in place
        sums = (wide[0][:, :, rows], wide[1][:, :, keys], wide[2][:, :, keys], *wide[3:])
        for total, slope in zip(sums, slopes, strict=True):
            if slope is not None:
                total += slope
    return [x.to(y.dtype) for x, y in zip(wide, inputs, strict=True)]


BlockArguments = tuple[slice, slice, Placed, float, ScoreOptions]


def _parts(ctx: Any, q: Tensor) -> Iterator[BlockArguments]:
    """Blocks of rows, each with the range of keys that it may attend to."""
    where = ctx.at.where
    for block in query_blocks(where, _block_rows(where, q)):
        # one after the other: each holds the bias that it has made
        yield block.rows, block.keys, ctx.at.block(block.rows, block.keys), ctx.scale, ctx.formula


def _block_rows(where: Geometry, q: Tensor) -> int:
    return max(1, MAX_BLOCK_SCORES // max(1, q.shape[0] * q.shape[1] * where.shape[1]))


def _cut(part: BlockArguments, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, keys, *_ = part
    return q[:, :, rows], k[:, :, keys], v[:, :, keys]


def _plain(part: BlockArguments, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None) -> Tensor:
    return finite_attention(AttentionCall(q, k, v, part[2], part[3], 0.0, changed(part[4], sinks=sinks)))
