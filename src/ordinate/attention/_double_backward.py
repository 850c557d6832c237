"""The attention formula in blocks of query rows, from which second derivatives of the fast backends are computed."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ordinate.attention._backend import AttentionCall, ScoreOptions, attention_weights, finite_attention
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.replaced_parameters import replaced
from ordinate.core.shapes import Outputs
from ordinate.ops.blocks import QueryBlock, query_blocks
from ordinate.ops.double_backward import Formula, Tensors
from ordinate.ops.heads import repeat_keys
from ordinate.ops.log_bias import LogBias, Pieces
from ordinate.schemes._scheme import Placed, Scheme

# scores per block; differentiating twice holds some ten tensors of this size
MAX_BLOCK_SCORES = 2**20


class TableCall(NamedTuple):
    """Attention whose bias is a table by memory offset, -inf where causal mask or window apply.

    Args:
        where: the geometry.
        scale: multiplies q.k.
        softcap: squashes the scaled products; None: no capping.
        first: memory offset of the first entry of the tables, from the full table's first.
        factors: dropout factors of a block of weights, by sequence, head and rows; None: no dropout.
    """

    where: Geometry
    scale: float
    softcap: float | None = None
    first: int = 0
    factors: Callable[[QueryBlock], Tensor] | None = None


def table_formula(call: TableCall) -> Formula:
    """Formula of attention with a table of biases: of q, k, v, table, sinks, and vectors for queries, keys, values.

    The last four may be left out or None.
    """

    def formula(inputs: Tensors, upstream: Tensors) -> Iterator[tuple[Tensors, Tensors]]:
        for block in _blocks(call.where, inputs[0]):
            yield (_table_rows(call, block, *inputs),), (upstream[0][:, :, block.rows],)

    return formula


def curve_formula(call: TableCall, knots: Tensor) -> Formula:
    """Formula of attention with a bias that is a curve of the distance: of q, k, v, sinks, and its lines and shares.

    Args:
        call: the call; its first entry and dropout factors are not read.
        knots: where pieces meet, as many as pieces, the last infinite.
    """
    where, pieces = call.where, len(knots)

    def formula(inputs: Tensors, upstream: Tensors) -> Iterator[tuple[Tensors, Tensors]]:
        q, k, v, sinks, lines, shares = inputs
        options = ScoreOptions(call.softcap, sinks)
        line = Pieces(knots[: pieces - 1], lines[:, 1 : 1 + pieces], lines[:, 1 + pieces :])
        for block in _blocks(where, q):
            own, keys, values = q[:, :, block.rows], k[:, :, block.keys], v[:, :, block.keys]
            keys, values = (repeat_keys(x, q.shape[1]) for x in (keys, values))
            bias = LogBias(lines[:, 0], shares[:, block.rows], line).bias(
                _memory_offset(block, q.device, where).abs()
            )
            scores = options.apply_softcap(own.to(bias.dtype) @ keys.to(bias.dtype).mT * call.scale) + bias
            weights = attention_weights(scores, where.block(block.rows, block.keys).visible, options)
            yield (weights.to(v.dtype) @ values,), (upstream[0][:, :, block.rows],)

    return formula


def _memory_offset(block: QueryBlock, device: torch.device, where: Geometry) -> Tensor:
    """Index of each query of a block among the keys minus that of each of its keys, (1, queries, keys)."""
    rows, keys = (torch.arange(x.start, x.stop, device=device) for x in (block.rows, block.keys))
    return (rows[:, None] + where.start - keys)[None]


def scheme_formula(at: Placed, scale: float, options: ScoreOptions, sinks: bool) -> Formula:
    """Formula of attention with any scheme: of q, k, v, the sinks if there are any, and the scheme's parameters.

    Args:
        at: the scheme and the geometry.
        scale: multiplies q.k.
        options: variations of the formula, without sinks.
        sinks: whether sinks are the fourth input.
    """
    module = SchemeFormula(at.scheme)

    def formula(inputs: Tensors, upstream: Tensors) -> Iterator[tuple[Tensors, Tensors]]:
        q, k, v, *rest = inputs
        own, learning = rest[:sinks], replaced(module, rest[sinks:])
        for block in _blocks(at.where, q):
            cut = q[:, :, block.rows], k[:, :, block.keys], v[:, :, block.keys]
            part = at.block(block.rows, block.keys), scale, options
            yield (learning.forward(part, *cut, *own),), (upstream[0][:, :, block.rows],)

    return formula


class SchemeFormula(nn.Module):
    """The formula as a module that owns the scheme, so that its parameters can be `replaced`."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.scheme = scheme

    def forward(
        self,
        part: tuple[Placed, float, ScoreOptions],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sinks: Tensor | None = None,
    ) -> Outputs:
        """Compute attention of a block: the scheme at its geometry, the scale and the variations of the formula."""
        at, scale, options = part
        own = at.with_scheme(self.scheme)
        return finite_attention(AttentionCall(q, k, v, own, scale, 0.0, changed(options, sinks=sinks)))


def undeclared_reason(call: AttentionCall) -> str | None:
    """Return why gradients with respect to the scheme's parameters are not all that it needs; None if they are.

    Backends that recompute the scheme in the backward pass differentiate it by its parameters. It may learn from
    other tensors too: the projections of a layer (DeBERTa), an attribute that has taken the place of a parameter, an
    attention mask with a gradient. So the first query is computed with parameters that have none.
    """
    if not torch.is_grad_enabled() or not call.q.shape[2]:
        return None
    rows, module = slice(0, 1), SchemeFormula(call.at.scheme)
    fixed = replaced(module, [x.detach() for x in module.parameters()])
    part = call.at.block(rows), call.scale, changed(call.score_options, sinks=None)
    inputs = call.q[:, :, rows].detach(), call.k.detach(), call.v.detach()
    learns = fixed.forward(part, *inputs).requires_grad
    return "the scheme learns from tensors that are not its parameters" if learns else None


def _blocks(where: Geometry, q: Any) -> list[QueryBlock]:
    return query_blocks(where, max(1, MAX_BLOCK_SCORES // max(1, q.shape[0] * q.shape[1] * where.shape[1])))


def _table_rows(
    call: TableCall,
    block: QueryBlock,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    sinks: Tensor | None = None,
    *vectors: Tensor | None,
) -> Outputs:
    """Rows of attention; kept apart from `finite_attention`, whose schemes know positions, not memory offsets."""
    asked, held, carried = vectors or (None, None, None)
    wide = torch.promote_types(q.dtype, torch.float32)
    q = q[:, :, block.rows].to(wide)
    k, v = (repeat_keys(x[:, :, block.keys], q.shape[1]).to(wide) for x in (k, v))
    # entry of each pair: that of offset key - query = 1 - queries is the full table's first
    rows = torch.arange(block.rows.start, block.rows.stop, device=q.device)[:, None]
    entry = torch.arange(block.keys.start, block.keys.stop, device=q.device) - rows
    # hidden pairs, which the mask excludes, may have an entry outside of the table
    entry = (entry + (call.where.shape[0] - 1 - call.first)).clamp(0, table.shape[1] - 1)
    options = ScoreOptions(call.softcap, sinks)
    scores = options.apply_softcap(q @ k.mT * call.scale) + table.to(wide)[:, entry]
    if asked is not None:
        scores = scores + _read(q @ asked.to(wide).mT, entry)
    if held is not None:
        scores = scores + _read(k @ held.to(wide).mT, entry.mT).mT
    weights = attention_weights(scores, call.where.block(block.rows, block.keys).visible, options)
    weights = weights if call.factors is None else weights * call.factors(block)
    out = weights @ v
    if carried is not None:
        carried = carried.to(wide).expand(-1, max(carried.shape[1], table.shape[1]), -1)
        spread = weights.new_zeros(*weights.shape[:3], carried.shape[1])
        out = out + spread.scatter_add(3, entry.expand_as(weights), weights) @ carried
    return out.to(v.dtype)


def _read(products: Tensor, entry: Tensor) -> Tensor:
    """Entries of the products with the vectors of all offsets; a single vector is that of every offset."""
    if products.shape[-1] == 1:
        return products.expand(*products.shape[:2], *entry.shape)
    return products.gather(3, entry.expand(*products.shape[:2], *entry.shape))
