"""Attention for any scheme in blocks of query rows, with recomputation in the backward pass."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.attention._backend import QUADRATIC_HOOKS, AttentionCall, Backend, ScoreOptions
from ordinate.attention._double_backward import scheme_formula, undeclared_reason
from ordinate.attention._few_pairs import few_head_pairs
from ordinate.attention._sdpa import unsupported_reason
from ordinate.attention._workspace import row_workspace
from ordinate.core.devices import on_cpu
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.replaced_parameters import replaced
from ordinate.core.shapes import Bias, Keys, Outputs, Queries, Values, Weights
from ordinate.ops import row_block_attention
from ordinate.ops.blocks import QueryBlock, largest_blocks, query_blocks
from ordinate.ops.double_backward import gradients
from ordinate.ops.heads import repeat_keys
from ordinate.ops.matmul import onednn_is_faster
from ordinate.ops.sdpa import sdpa
from ordinate.schemes._scheme import Placed, Scheme

# largest numbers of queries and of scores per block
MAX_BLOCK_ROWS, MAX_BLOCK_SCORES = 256, 2**23
# with fewer query-key pairs, over batch and heads, the overhead exceeds the gain
MIN_PAIRS = 2**21
# with fewer in a head and fewer than MANY_PAIRS in all, other ways are faster; they compute future keys, too
MIN_CAUSAL_PAIRS, MIN_OTHER_PAIRS, MANY_PAIRS = 3 * 2**16, 2**21, 2**25


class RowBlocks(Backend):
    """The attention formula in blocks of query rows, for any scheme: no queries x keys tensor is held.

    The backward pass recomputes each block. The scheme is evaluated for the rows of a block and the keys from the
    first to the last that causality and window leave to any of them. Computed in float32 at least.
    """

    priority = 400

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject schemes without a bias, dropout, small inputs, and non-finite numbers."""
        if not on_cpu(call.q):
            return "only CPUs are supported"
        if not QUADRATIC_HOOKS & set(call.at.scheme.hooks):
            return "the scheme adds nothing to the scores"
        if torch.compiler.is_compiling():
            return "torch.compile cannot trace it"
        if call.dropout:
            return "dropout is not supported"
        if call.num_pairs < MIN_PAIRS:
            return f"there are fewer than {MIN_PAIRS} query-key pairs"
        return call.overflow_reason or undeclared_reason(call)

    def slower_reason(self, call: AttentionCall) -> str | None:
        """Leave short texts to the plain formula, until the memory of all their pairs counts."""
        if not QUADRATIC_HOOKS & set(call.at.scheme.hooks):
            return None
        few = few_head_pairs(call, MIN_CAUSAL_PAIRS if call.where.is_causal else MIN_OTHER_PAIRS)
        return few if few and call.num_pairs < MANY_PAIRS else None

    def run(self, call: AttentionCall) -> Outputs:
        """Apply the blockwise autograd function."""
        return _Rows.apply(call, call.q, call.k, call.v, *call.at.scheme.parameters())

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Float32 copies of keys and values, and the largest block: its bias, mask, and the scores of a head.

        Extended from the first rows of that block.
        """
        compute, keys, values = _forward_way(call)
        copies = sum(x.numel() * x.element_size() for x, y in ((keys, call.k), (values, call.v)) if x is not y)

        def held(cut: QueryBlock) -> int:
            k, v, at = keys[:, :, cut.keys], values[:, :, cut.keys], call.at.block(cut.rows, cut.keys)
            part = changed(call, q=call.q[:, :, cut.rows], k=k, v=v, at=at)
            # the block's own output is held beside the result
            own = cut.size[0] * call.q.shape[:2].numel() * call.v.shape[3] * max(4, call.q.element_size())
            return row_workspace(part, compute) + own

        with torch.no_grad():
            return copies + max(map(held, largest_blocks(_blocks(call.at, call.q))))


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: AttentionCall, q: Tensor, k: Tensor, v: Tensor, *learned: Tensor) -> Tensor:
        ctx.at, ctx.scale = call.at, call.scale
        # the scheme's parameters are inputs, so that autograd asks for their gradients and notices in-place changes
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, *learned)
        compute, keys, values = _forward_way(call)
        out = q.new_empty(*q.shape[:3], v.shape[3])
        for block in _blocks(call.at, q):
            k, v = keys[:, :, block.keys], values[:, :, block.keys]
            # a function, so that nothing of a block is held while the next one is computed
            part = changed(call, q=q[:, :, block.rows], k=k, v=v, at=call.at.block(block.rows, block.keys))
            out[:, :, block.rows] = compute(part)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors

        def fast(gradient: Tensor) -> list[Tensor]:
            q, k, v, *learned = inputs
            sums = _Gradients(ctx.at, ctx.scale, q, k, v, learned)
            for block in _blocks(ctx.at, q):
                sums.add(block, row_block_attention.to_float32(gradient[:, :, block.rows]))
            return sums.gradients

        plain = scheme_formula(ctx.at, ctx.scale, ScoreOptions(), sinks=False)
        return None, *gradients(fast, plain, inputs, grad_outputs)


def _forward_way(call: AttentionCall) -> tuple[Callable[[AttentionCall], Outputs], Keys, Values]:
    """Return how a block is computed in the forward pass, from which keys and values.

    PyTorch's fused kernel is faster where its BLAS is; it takes what is added to scaled products.
    """
    if not onednn_is_faster() and unsupported_reason(call) is None:
        return _fused_attention, call.k, call.v
    return _block_attention, row_block_attention.to_float32(call.k), row_block_attention.to_float32(call.v)


def _fused_attention(part: AttentionCall) -> Outputs:
    """Compute attention of a block of queries by PyTorch's kernel, whose mask is what the scheme adds."""
    at, wide = part.at, torch.promote_types(part.q.dtype, torch.float32)
    added = _Added(at.scheme).forward(at, part.q.to(wide), part.k.to(wide), part.scale)
    if not at.where.is_unmasked:
        hidden = ~at.where.visible[:, None]
        added = hidden.logical_not() if added is None else added.masked_fill(hidden, float("-inf"))
    return sdpa(part.q, part.k, part.v, added, scale=part.scale, grouped=part.groups > 1)


def _block_attention(part: AttentionCall) -> Outputs:
    """Compute attention of a block of queries, whose keys and values are float32 or wider."""
    scheme, at, q = part.at.scheme, part.at, row_block_attention.to_float32(part.q)
    rows = _rows(at, q, part.k, part.v, part.scale, _Added(scheme).forward(at, q, part.k, part.scale), part.q.dtype)
    if "value_bias" not in scheme.hooks:
        return rows.weighted_values(None)
    weights = rows.all_weights()
    carried, out = scheme.value_bias(weights, at.where), rows.weighted_values(weights)
    return out if carried is None else out + carried


class _Gradients:
    """Accumulates the gradients of queries, keys, values and parameters, block by block."""

    def __init__(self, at: Placed, scale: float, q: Queries, k: Keys, v: Values, learned: Sequence[Tensor]) -> None:
        self.at, self.scale, self.learned = at, scale, learned
        self.types = [x.dtype for x in (q, k, v, *learned)]
        self.q, self.k, self.v = q, row_block_attention.to_float32(k), row_block_attention.to_float32(v)
        self.to_q = torch.empty_like(self.q, dtype=self.k.dtype)
        # transposed, since matrix products into this layout are faster
        self.to_k, self.to_v = (x.new_zeros(x.mT.shape) for x in (self.k, self.v))
        wide = [torch.promote_types(x.dtype, torch.float32) for x in learned]
        self.sums = [torch.zeros_like(x, dtype=type) for x, type in zip(learned, wide, strict=True)]

    @property
    def gradients(self) -> list[Tensor]:
        made = (self.to_q, self.to_k.mT, self.to_v.mT, *self.sums)
        return [x.to(type) for x, type in zip(made, self.types, strict=True)]

    def add(self, block: QueryBlock, upstream: Outputs) -> None:
        """Add the gradients of one block, whose weights are recomputed."""
        at = self.at.block(block.rows, block.keys)
        q, k, v = (
            row_block_attention.to_float32(self.q[:, :, block.rows]),
            self.k[:, :, block.keys],
            self.v[:, :, block.keys],
        )
        leaves = own_q, own_k, *learned = [x.detach().requires_grad_() for x in (q, k, *self.learned)]
        with torch.enable_grad():
            # with the parameters of the forward pass, even if the module's have been replaced since
            added = replaced(_Added(at.scheme), learned).forward(at, own_q, own_k, self.scale)
        part = _rows(at, q, k, v, self.scale, None if added is None else added.detach(), self.q.dtype)
        to_weights = self._carried(part, at, upstream) if "value_bias" in at.scheme.hooks else None
        to_k, to_v = self.to_k[..., block.keys], self.to_v[..., block.keys]
        to_q, to_added = part.backward(upstream, to_weights, to_k, to_v)
        if added is not None and to_added is not None and added.requires_grad:
            more_q, more_k, *more = torch.autograd.grad(added, leaves, to_added, allow_unused=True)
            to_q = to_q if more_q is None else to_q + more_q
            to_k += 0.0 if more_k is None else more_k.mT
            self._add(more)
        self.to_q[:, :, block.rows] = to_q

    def _carried(self, part: row_block_attention.AttentionRows, at: Placed, upstream: Outputs) -> Weights | None:
        """Return the gradient of the weights through `value_bias`, and add that of the parameters."""
        weights = part.all_weights().requires_grad_()
        leaves = [weights, *(x.detach().requires_grad_() for x in self.learned)]
        with torch.enable_grad():
            carried = replaced(_Carried(at.scheme), leaves[1:]).forward(leaves[0], at.where)
        if carried is None:
            return None
        to_weights, *more = torch.autograd.grad(carried, leaves, upstream, allow_unused=True)
        self._add(more)
        return to_weights

    def _add(self, more: Sequence[Tensor | None]) -> None:
        for total, one in zip(self.sums, more, strict=True):
            if one is not None:
                total += one


def _blocks(at: Placed, q: Tensor) -> list[QueryBlock]:
    size = MAX_BLOCK_SCORES // max(1, q.shape[0] * q.shape[1] * at.where.shape[1])
    return query_blocks(at.where, min(max(1, size), MAX_BLOCK_ROWS))


def _rows(
    at: Placed, q: Queries, k: Keys, v: Values, scale: float, added: Bias | None, kept: torch.dtype
) -> row_block_attention.AttentionRows:
    own = "score" in at.scheme.hooks
    return row_block_attention.AttentionRows(
        q, k, v, None if own else scale, added, row_block_attention.additive_mask(at.where, q.dtype), kept
    )


class _Added(nn.Module):
    """What a scheme adds to the scores, or its own scores, as a module that owns its parameters."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.scheme = scheme

    def forward(self, at: Placed, q: Queries, k: Keys, scale: float) -> Bias | None:
        k = repeat_keys(k, q.shape[1])
        own, bias = self.scheme.score(q, k, at.where), at.with_scheme(self.scheme).bias
        parts = None if own is None else own * scale, bias, self.scheme.content_bias(q, k, at.where)
        made = [part for part in parts if part is not None]
        return sum(made[1:], made[0]).to(q.dtype) if made else None


class _Carried(nn.Module):
    """The scheme's `value_bias`, as a module that owns its parameters."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.scheme = scheme

    def forward(self, weights: Weights, where: Geometry) -> Outputs | None:
        return self.scheme.value_bias(weights, where)
