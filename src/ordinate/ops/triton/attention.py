"""Attention by the Triton kernels: forward, backward, and the gradients of biases and sinks."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinate.core.geometry import PADDING
from ordinate.ops.triton.backward import attention_backward_keys, attention_backward_queries
from ordinate.ops.triton.curves import Curve
from ordinate.ops.triton.decay import key_spans, query_spans, skips_keys
from ordinate.ops.triton.diagonals import add_tiles, join
from ordinate.ops.triton.forward import attention_forward
from ordinate.ops.triton.kernel import contiguous_channels, launch, matrix
from ordinate.ops.triton.needed import TILE, needed_keys
from ordinate.ops.triton.outputs import TABLE_PADDING, empty_gradients, empty_kept, empty_outputs
from ordinate.ops.triton.rows import find_delta, find_poison
from ordinate.ops.triton.scores import Bias, Form, Structure
from ordinate.ops.triton.spans import document_spans
from ordinate.ops.triton.tiles import Tile, Tiles, device_class, tiles

# programs of the gradient of a table that keep a large device busy; fixed, so that all devices sum in one order
PROGRAMS = 512
# rows per program of the kernels that go through memory once
ROWS = Tile(64, 64, 4, 1)


class Problem(NamedTuple):
    """One attention computation.

    Args:
        q: queries (batch, heads, queries, channels).
        k: keys (batch, key heads, keys, channels).
        v: values (batch, key heads, keys, channels of values).
        table: bias by memory offset, float32 (heads, entries); offsets beyond its ends have its ends. Or None.
        slopes: by which the bias falls with each token behind and ahead, float32 (2, heads). Or None.
        sinks: scores of a further key without value, float32 (heads). Or None.
        q_document: documents of the queries (1 or batch, queries), None: one document.
        k_document: documents of the keys.
        causal: causal mask.
        start: index of the first query among the keys.
        window: sliding window; 0: none.
        origin: entry of the table whose offset is zero: key index minus query index, both from 0.
        far: whether pairs lie beyond the ends of the table.
        scale: multiplies q.k.
        cap: soft cap; 0: none.
        lines: for a bias that is a curve, of each head the rate, the levels and the slopes, float32 (heads, 1 + 2
            pieces), as many pieces as a power of two. Or None.
        shares: factors of the queries' logarithms, float32 (1 or batch, queries).
        knots: where pieces meet, float32 (pieces), the last infinite.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    table: Tensor | None = None
    slopes: Tensor | None = None
    sinks: Tensor | None = None
    q_document: Tensor | None = None
    k_document: Tensor | None = None
    causal: bool = False
    start: int = 0
    window: int = 0
    origin: int = 0
    far: bool = False
    scale: float = 1.0
    cap: float = 0.0
    lines: Tensor | None = None
    shares: Tensor | None = None
    knots: Tensor | None = None


class Prepared(NamedTuple):
    """A problem as the kernels take it.

    Args:
        problem: the problem, with contiguous channels.
        bias: its bias.
        where: its sizes and visibility, without spans.
        tiles: configurations of the kernels.
        upcast: whether 16-bit numbers are widened before products.
        nvidia: whether the GPU is one of NVIDIA.
        kept: what is found in the tensors, if it is known.
    """

    problem: Problem
    bias: Bias
    where: Structure
    tiles: Tiles
    upcast: bool
    nvidia: bool
    kept: "Kept | None"

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of batch times heads, of queries and of keys."""
        q, k = self.problem.q, self.problem.k
        return q.shape[0] * q.shape[1], k.shape[0] * k.shape[1]

    def form(self, tile: Tile, learned: bool = False) -> Form:
        """Return what a kernel is compiled for."""
        given, (width, depth) = self.problem, (self.problem.q.shape[3], self.problem.v.shape[3])
        return Form(
            tile.rows,
            tile.columns,
            given.q.shape[1] // given.k.shape[1],
            width,
            depth,
            padded(width),
            padded(depth),
            given.causal,
            given.window > 0,
            given.q_document is not None,
            given.cap > 0,
            given.table is not None or given.slopes is not None or given.lines is not None,
            given.sinks is not None,
            given.far,
            learned,
            self.upcast,
            self.nvidia,
            self.tiles.products,
            0 if given.knots is None else len(given.knots),
        )

    def structure(self, tile: Tile, of_keys: bool = False) -> Structure:
        """Return sizes and visibility with the spans of tiles of this size."""
        given = self.problem
        if self.kept is not None and self.kept.needed.numel():
            groups, keys, needed = given.q.shape[1] // given.k.shape[1], given.k.shape[2], self.kept.needed
            spans = query_spans(needed, tile, groups, keys) if of_keys else key_spans(needed, tile)
        elif given.q_document is not None and given.k_document is not None:
            spans = document_spans(self.where.q_document, self.where.k_document, tile, of_keys)[:, None]
        else:
            return self.where
        # sequences or heads that share them have the stride 0
        strides = (0 if size == 1 else stride for size, stride in zip(spans.shape[:2], spans.stride(), strict=False))
        return self.where._replace(spans=spans, **dict(zip(("span_batch", "span_head"), strides, strict=True)))


def padded(channels: int) -> int:
    """Return the power of two from 16 on that holds so many channels."""
    return max(16, 1 << (channels - 1).bit_length())


def describe(given: Problem) -> Prepared:
    """Describe tensors and sizes; which keys are not finite is left open."""
    q, k, v = (contiguous_channels(x) for x in (given.q, given.k, given.v))
    given = given._replace(q=q, k=k, v=v)
    kind = device_class(q.device)
    channels = max(padded(q.shape[3]), padded(v.shape[3]))
    found = tiles(kind, q.dtype, channels, curved=given.lines is not None, window=given.window)
    rows = 0
    asks, holds = given.q_document, given.k_document
    if asks is not None and holds is not None:
        asks, holds = (x.long() for x in (asks, holds))
        # no query has this document, so that padding attends to nothing either
        holds = holds.masked_fill(holds == PADDING, torch.iinfo(torch.int64).min)
        rows = int(max(len(asks), len(holds)) > 1)
        asks, holds = (x.expand(max(len(asks), len(holds)), -1).contiguous() for x in (asks, holds))
    entries = 1 if given.table is None else given.table.shape[1]
    bias = Bias(given.table, given.slopes, given.sinks, given.origin, entries - 1, entries, curve(given))
    sizes = q.shape[1], k.shape[1], q.shape[2], k.shape[2], given.start, given.window
    where = Structure(*sizes, given.scale, given.cap, asks, holds, rows, None, 0, 0, None)
    # the interpreter multiplies the bits of bfloat16
    upcast, nvidia = kind == "interpreter" and q.dtype == torch.bfloat16, kind not in ("interpreter", "amd", "cdna")
    return Prepared(given, bias, where, found, upcast, nvidia, None)


def curve(given: Problem) -> Curve | None:
    """Return the numbers of a bias that is a curve as the kernels take them; None: the bias is of another kind."""
    if given.shares is None:
        return None
    shares = given.shares.contiguous()
    return Curve(given.knots, given.lines, shares, shares.stride(0) if len(shares) > 1 else 0)


class Kept(NamedTuple):
    """What a forward pass finds in the tensors and its backward pass needs again.

    Args:
        poison: as in `ordinate.ops.triton.scores.Structure`.
        needed: the first key that each query needs, where a bias makes others negligible; else without entries.
        table: with `TABLE_PADDING` entries more at both ends; without entries where there is none.
    """

    poison: Tensor
    needed: Tensor
    table: Tensor


def prepare(given: Problem, kept: Kept | None = None) -> Prepared:
    """Describe tensors and sizes, and find NaN and infinity among the keys, and keys that are negligible.

    Args:
        given: the problem.
        kept: what the forward pass has found; None: this is the forward pass.
    """
    ready = describe(given)
    q, k, v = ready.problem[:3]
    if kept is None:
        poison, needed, table = empty_kept(q, k, None, skips=False)
        if given.table is not None:
            table = torch.nn.functional.pad(given.table[None], (TABLE_PADDING, TABLE_PADDING), mode="replicate")[0]
        grid = -(-k.shape[2] // ROWS.rows), ready.grid[1]
        arguments = matrix(k), matrix(v), poison, k.shape[1], k.shape[2], ready.form(ROWS)
        launch(find_poison, grid, arguments, ROWS.options)
        if given.slopes is not None and _skips_keys(given):
            found = ready.where._replace(poison=poison)
            needed = needed_keys(q, k, given.slopes, found, ready.form(TILE))
        kept = Kept(poison, needed, table)
    if given.table is not None:
        inner = kept.table[:, TABLE_PADDING:]
        ready = ready._replace(bias=ready.bias._replace(table=inner, pitch=kept.table.shape[1]))
    return ready._replace(where=ready.where._replace(poison=kept.poison), kept=kept)


def _skips_keys(given: Problem) -> bool:
    return skips_keys(given.q, given.k, given.slopes, given.q_document, causal=given.causal, start=given.start)


def forward(given: Problem) -> tuple[Tensor, ...]:
    """Return the output, laid out as (batch, queries, heads, channels), log-sum-exp in units of log2, and `Kept`."""
    ready = prepare(given)
    q, k, v = ready.problem[:3]
    out, lse = empty_outputs(q, v)
    tile = ready.tiles.forward
    grid = -(-q.shape[2] // tile.rows), ready.grid[0]
    arguments = (matrix(q), matrix(k), matrix(v)), matrix(out), lse, ready.bias, ready.structure(tile)
    launch(attention_forward, grid, (*arguments, ready.form(tile)), tile.options)
    return out, lse, *(ready.kept or ())


class Gradients(NamedTuple):
    """Gradients of a problem's inputs; None where there is no such input, or where none is needed."""

    q: Tensor
    k: Tensor
    v: Tensor
    table: Tensor | None
    slopes: Tensor | None
    sinks: Tensor | None
    lines: Tensor | None = None
    shares: Tensor | None = None


class Added(NamedTuple):
    """Gradients to be added: of the last queries, and of as many of the first keys and values."""

    q: Tensor
    k: Tensor
    v: Tensor


def backward(
    gradient: Tensor, given: Problem, results: Sequence[Tensor], learned: bool, added: Added | None = None
) -> Gradients:
    """Return the gradients; weights are computed again from the log-sum-exp.

    Args:
        gradient: of the output.
        given: the problem.
        results: as `forward` returns them.
        learned: whether the bias needs a gradient.
        added: what the gradients have added to them.
    """
    out, lse, *kept = results
    ready = prepare(given, Kept(*kept))
    gradient = contiguous_channels(gradient)
    q, k, v = ready.problem[:3]
    delta = torch.empty_like(lse)
    grid = -(-q.shape[2] // ROWS.rows), ready.grid[0]
    arguments = matrix(out), matrix(gradient), lse, delta, q.shape[1], q.shape[2], ready.form(ROWS)
    launch(find_delta, grid, arguments, ROWS.options)
    tensors, softmax = tuple(matrix(x) for x in (q, k, v, gradient)), (lse, delta)
    dk, dv = empty_gradients(given.k, given.v)
    tile = ready.tiles.keys
    grid = -(-k.shape[2] // tile.columns), ready.grid[1]
    more = None if added is None else (matrix(added.k), matrix(added.v), k.shape[2] - added.k.shape[2])
    arguments = tensors, softmax, (matrix(dk), matrix(dv)), more, ready.bias, ready.structure(tile, of_keys=True)
    launch(attention_backward_keys, grid, (*arguments, ready.form(tile)), tile.options)
    dq, sums, shares = _backward_queries(ready, tensors, softmax, learned, None if added is None else added.q)
    table = _table_gradient(ready, tensors, softmax, sums) if learned and given.table is not None else None
    slopes = sums.T.contiguous() if sums is not None and given.slopes is not None else None
    lines = sums if given.lines is not None else None
    return Gradients(dq, dk, dv, table, slopes, sinks_gradient(given.sinks, lse, delta), lines, shares)


def _backward_queries(
    ready: Prepared, tensors: Any, softmax: tuple[Tensor, Tensor], learned: bool, added: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of the queries, if the bias has any the sums for its two slopes, for the two ends of its
    table or for its lines (heads, sums), and the gradients of shares.
    """
    given, tile = ready.problem, ready.tiles.queries
    batch, heads, queries, _ = given.q.shape
    (dq,) = empty_gradients(given.q)
    grid = -(-queries // tile.rows), batch * heads
    summed = learned and (given.slopes is not None or given.far or given.lines is not None)
    count = 2 if given.lines is None else given.lines.shape[1]
    sums = dq.new_empty(batch, heads, grid[0] if summed else 0, count, dtype=torch.float32)
    shares = sums.new_empty(batch, heads, queries if summed and given.lines is not None else 0)
    more = None if added is None else (matrix(added), queries - added.shape[2])
    arguments = tensors, softmax, (matrix(dq), sums, shares), more, ready.bias, ready.structure(tile)
    launch(attention_backward_queries, grid, (*arguments, ready.form(tile, summed)), tile.options)
    if not summed:
        return dq, None, None
    of_shares = None
    if given.shares is not None:
        # sequences may have them in common
        of_shares = shares.sum((0, 1))[None] if len(given.shares) == 1 else shares.sum(1)
    return dq, sums.sum((0, 2)), of_shares


def _table_gradient(ready: Prepared, tensors: Any, softmax: tuple[Tensor, Tensor], ends: Tensor | None) -> Tensor:
    """Return the gradient of the table: sums along diagonals, and at its ends those of all that lies beyond."""
    given, tile, bias = ready.problem, ready.tiles.diagonals, ready.bias
    batch, heads = given.q.shape[:2]
    lowest = -bias.origin // tile.rows
    distances = -((bias.origin - bias.last) // tile.rows) - lowest + 1
    count = batch * min(-(-given.q.shape[2] // tile.rows), -(-given.k.shape[2] // tile.rows))
    chunks = max(1, min(count, PROGRAMS // (heads * distances)))
    sums = given.q.new_empty(heads, chunks, 2, distances + 1, tile.rows, dtype=torch.float32)
    arguments = tensors, softmax, sums, bias, ready.where, (lowest, batch, chunks), ready.form(tile)
    launch(add_tiles, (distances, heads, chunks), arguments, tile.options)
    made = join(sums, lowest, bias.origin, bias.last + 1)
    if ends is not None:
        made[:, 0], made[:, -1] = ends.T
    return made


def sinks_gradient(sinks: Tensor | None, lse: Tensor, delta: Tensor) -> Tensor | None:
    """Return the gradient of the sinks: minus the weight of the sink times delta, over all queries."""
    if sinks is None:
        return None
    weights = torch.exp2(sinks[:, None] * math.log2(math.e) - lse)
    return -(weights.nan_to_num(0.0) * delta).sum((0, 2))
