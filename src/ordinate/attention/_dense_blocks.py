"""Attention in C++ with a bias of each pair, in blocks of query rows: the bias of one block is held at a time."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall
from ordinate.attention._block_gradients import block_gradients
from ordinate.attention._dense_terms import Terms, TermSource
from ordinate.attention._native import (
    NativeResults,
    native_attention,
    native_results,
    plain_attention,
    stays_in_range,
)
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Keys, Outputs, Queries, Weights
from ordinate.ops.blocks import QueryBlock, query_blocks
from ordinate.ops.double_backward import gradients

# largest numbers of queries and of pairs per block; with fewer queries than the least the kernel is slow, and the
# bias of so many has about as many numbers as the queries of all blocks
MAX_ROWS, MAX_PAIRS, MIN_ROWS = 256, 2**22, 64


def blocks_of(where: Geometry, q: Queries, k: Keys) -> list[QueryBlock]:
    """Return the blocks of a call."""
    rows = MAX_PAIRS // max(1, q.shape[0] * q.shape[1] * k.shape[2])
    return query_blocks(where, min(max(MIN_ROWS, rows), MAX_ROWS))


def attend_whole(call: AttentionCall, terms: Terms) -> Outputs:
    """Compute attention with these terms, which are held until the backward pass."""
    if stays_in_range(call, terms.largest):
        return _carried(terms, *native_attention(call, terms.table, terms.bias, terms.carry is not None))
    return _carried(terms, *plain_attention(call, terms.table, terms.bias))


def attend_by_blocks(call: AttentionCall, source: TermSource) -> Outputs:
    """Compute attention block by block. The backward pass makes the terms of each block anew.

    The sums of the softmax are kept, so that the kernel runs forward only once, but for schemes that read the weights
    (Shaw), which are not kept, and for outputs that the kernel has in another form.
    """
    return _Blocks.apply((call, source), call.q, call.k, call.v, call.score_options.sinks, *source.learned)


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: tuple[AttentionCall, TermSource], *inputs: Any) -> Tensor:
        (call, ctx.source), (q, k, v, *_) = given, inputs
        ctx.set_materialize_grads(False)
        ctx.at, ctx.scale, ctx.options = call.at, call.scale, changed(call.score_options, sinks=None)
        learns = any(ctx.needs_input_grad)
        results = NativeResults.empty(q, v, learned=learns)
        # first rows of blocks that are left to the formula, and whether results of the others serve the backward pass
        ctx.by_formula, ctx.keeps = set(), False
        for cut in blocks_of(call.where, q, k):
            _compute(ctx, call, cut, inputs, results, learns)
        ctx.save_for_backward(*inputs, *(results if ctx.keeps else (None, None, None)))
        return results.out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        *inputs, out, softmax, lost = ctx.saved_tensors

        def compute(cut: QueryBlock, leaves: Sequence[Tensor | None]) -> Outputs:
            part = _part(ctx, cut, leaves[:4])
            terms = ctx.source.of(part, cut, leaves[4:])
            if cut.rows.start in ctx.by_formula:
                return _carried(terms, *plain_attention(part, terms.table, terms.bias))
            known = NativeResults(out, softmax, lost).rows(cut.rows) if ctx.keeps else None
            made = native_attention(part, terms.table, terms.bias, terms.carry is not None, known)
            return _carried(terms, *made)

        def fast(gradient: Tensor) -> list[Tensor | None]:
            return block_gradients(inputs, gradient, blocks_of(ctx.at.where, *inputs[:2]), compute)

        return None, *gradients(fast, ctx.source.formula, inputs, grad_outputs)


def _compute(
    ctx: Any, call: AttentionCall, cut: QueryBlock, inputs: Sequence[Any], results: NativeResults, learns: bool
) -> None:
    """Compute a block of the forward pass: a function, so that nothing of it is held while the next is computed."""
    q, k, v, sinks, *learned = inputs
    part = _part(ctx, cut, (q[:, :, cut.rows], k[:, :, cut.keys], v[:, :, cut.keys], sinks))
    terms = ctx.source.of(part, cut, learned)
    if not stays_in_range(call, terms.largest):
        ctx.by_formula.add(cut.rows.start)
        results.out[:, :, cut.rows] = _carried(terms, *plain_attention(part, terms.table, terms.bias))
        return
    weighs = terms.carry is not None
    made, weights = native_results(part, terms.table, terms.bias, with_weights=weighs, learned=learns)
    ctx.keeps = not weighs and results.take(cut.rows, made)
    results.out[:, :, cut.rows] = _carried(terms, made.out[..., : v.shape[3]].to(q.dtype), weights)


def _part(ctx: Any, cut: QueryBlock, tensors: Sequence[Tensor | None]) -> AttentionCall:
    """Return the call of a block, of its queries, keys and values and the sinks."""
    q, k, v, sinks = tensors
    at, options = ctx.at.block(cut.rows, cut.keys), changed(ctx.options, sinks=sinks)
    return AttentionCall(cast(Tensor, q), cast(Tensor, k), cast(Tensor, v), at, ctx.scale, 0.0, options)


def _carried(terms: Terms, out: Outputs, weights: Weights | None) -> Outputs:
    more = None if terms.carry is None or weights is None else terms.carry(weights)
    return out if more is None else (out + more).to(out.dtype)
