# pyrefly: ignore-errors
"""Causal attention whose vectors by offset are constant from some distance on, as Shaw's: see `near_far`.

There a score is q_i . k_j + c_i, with c_i = q_i . asked[0] + table[0], and all values have carried[0] added. With the
weight w_i = exp(l'_i + c_i - L_i) of all farther keys of a query, their output o' and the output's gradient g, the
gradients of their scores sum to

    s_i = w_i (g_i . (o'_i + carried[0]) - g_i . out_i)

which is what c_i gets: asked[0] gets the sum of s_i q_i, table[0] that of s_i, carried[0] that of w_i g_i, and the
query s_i asked[0]. The fused kernel is given the output without carried[0], and L_i - c_i.
"""

import math
from collections.abc import Sequence

import triton.language as tl
from torch import Tensor

from ordinate.ops.triton import vectors
from ordinate.ops.triton.attention import Prepared, describe
from ordinate.ops.triton.bands import Vectors, load_vector
from ordinate.ops.triton.kernel import contiguous_channels, kernel, launch, matrix
from ordinate.ops.triton.near_far import TILE, far, far_gradients, join, near
from ordinate.ops.triton.scores import INFINITY, LOG2E, base, load_tile, store_tile
from ordinate.ops.triton.vector_ends import query_shift
from ordinate.ops.triton.vectors import Learned, VectorGradients, VectorProblem, band

LOG2 = tl.constexpr(math.log(2))


def forward(given: VectorProblem) -> tuple[Tensor, ...]:
    """Return what `ordinate.ops.triton.vectors.forward` does, then output and log-sum-exp of the farther keys.

    Args:
        given: a causal problem, as many queries as keys, whose table and vectors begin where they are constant; no
            vectors for keys, window, documents, sinks or cap.
    """
    other, norm = far(given.base)
    # PyTorch's kernels lay it out as the queries, or with heads beside each other, as the operator says that it does
    farther = other.transpose(1, 2).contiguous().transpose(1, 2), norm
    out, lse, *kept = vectors.forward(given._replace(base=near(given.base)))
    join(describe(given.base), _vectors(given), farther, (out, lse))
    return out, lse, *kept, *farther


def backward(gradient: Tensor, given: VectorProblem, results: Sequence[Tensor], learned: Learned) -> VectorGradients:
    """Return the gradients as `ordinate.ops.triton.vectors.backward` does.

    Args:
        gradient: of the output.
        given: the problem.
        results: as `forward` returns them.
        learned: which of the inputs beside queries, keys and values need a gradient.
    """
    reach, ready = given.base.origin, describe(given.base)
    gradient = contiguous_channels(gradient)
    less, norm, change, shares = _shared(gradient, ready, _vectors(given), results)
    dq, dk, dv = far_gradients(gradient, given.base, less, norm)
    found = vectors.backward(gradient, given._replace(base=near(given.base)), results[:-2], learned)
    grid = -(-norm.shape[2] // TILE.rows), ready.grid[0]
    arguments = matrix(found.q), (matrix(contiguous_channels(dq)), change), _vectors(given), reach, ready.where
    launch(add_queries, grid, (*arguments, ready.form(TILE)), TILE.options)
    found.k[:, :, :-reach] += dk
    found.v[:, :, :-reach] += dv
    width, depth = given.base.q.shape[3], given.base.v.shape[3]
    for gradients, sums in ((found.asked, shares[:, 0, :width]), (found.carried, shares[:, 1, :depth])):
        if gradients is not None:
            gradients[:, 0] += sums.sum(0, keepdim=True) if len(gradients) == 1 else sums
    if found.table is not None:
        found.table[:, 0] += shares[:, 2, 0]
    return found


def _vectors(given: VectorProblem) -> Vectors:
    return Vectors(*(band(x, given.base.q.dtype) for x in (given.asked, None, given.carried)), None)


def _shared(
    gradient: Tensor, ready: Prepared, held: Vectors, results: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the fused kernel takes for output and log-sum-exp, s_i, and sums over queries by head: `share`."""
    (out, lse, *_, other, norm), given = results, ready.problem
    batch, heads, rows, depth = other.shape
    less, lower, change = other.new_empty(other.shape), norm.new_empty(norm.shape), norm.new_empty(norm.shape)
    grid = -(-rows // TILE.rows), batch * heads
    sums = norm.new_empty(batch, heads, grid[0], 3, max(given.q.shape[3], depth))
    inputs = tuple(matrix(x) for x in (given.q, gradient, out, other)), (lse, norm)
    arguments = *inputs, (matrix(less), lower, change, sums), (ready.bias, held), given.origin, ready.where
    launch(share, grid, (*arguments, ready.form(TILE)), TILE.options)
    return less, lower, change, sums.sum((0, 2))


@kernel
def share(given, softmax, made, inputs, reach, where, FORM: tl.constexpr):
    """Store s_i of a tile of queries, their output and log-sum-exp for the fused kernel, and three sums over them.

    `given` are queries, the output's gradient, the output and that of the farther keys; `softmax` the log-sum-exp of
    all and of the farther keys. The sums are those of s_i q_i, of w_i g_i and of s_i.
    """
    ROWS: tl.constexpr = FORM.rows
    q, gradient, out, far = given
    lse, norm = softmax
    less, lower, changes, sums = made
    bias, vectors = inputs
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    begin, rows = tl.program_id(0) * ROWS, where.queries - reach
    i = begin + tl.arange(0, ROWS)
    real = i < rows
    queries = load_tile(base(q, batch, head), q.row, reach + begin, real, FORM, ROWS, False, True)
    shift = query_shift(queries, 0, (bias, vectors, head), FORM)
    upstream = load_tile(base(gradient, batch, head), gradient.row, reach + begin, real, FORM, ROWS, True, True)
    upstream = upstream.to(tl.float32)
    mine = load_tile(base(out, batch, head), out.row, reach + begin, real, FORM, ROWS, True, True).to(tl.float32)
    other = load_tile(base(far, batch, head), far.row, begin, real, FORM, ROWS, True, True).to(tl.float32)
    total = tl.load(lse + tl.program_id(1).to(tl.int64) * where.queries + reach + i, mask=real, other=INFINITY)
    place = tl.program_id(1).to(tl.int64) * rows + i
    weight = tl.exp2(tl.load(norm + place, mask=real, other=0.0) * LOG2E + shift - total)
    kept = mine
    if vectors.carried is not None:
        carried = load_vector(vectors.carried, head, 0, FORM, True)[None, :]
        other += carried
        kept -= carried
    change = weight * tl.sum(upstream * (other - mine), 1)
    store_tile(base(less, batch, head), less.row, begin, rows, kept, FORM, True)
    tl.store(lower + place, (total - shift) * LOG2, mask=real)
    tl.store(changes + place, change, mask=real)
    size: tl.constexpr = FORM.width if FORM.width > FORM.depth else FORM.depth
    first = sums + (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * 3 * size
    channel, value = tl.arange(0, FORM.padded_width), tl.arange(0, FORM.padded_depth)
    tl.store(first + channel, tl.sum(change[:, None] * queries.to(tl.float32), 0), mask=channel < FORM.width)
    tl.store(first + size + value, tl.sum(weight[:, None] * upstream, 0), mask=value < FORM.depth)
    tl.store(first + 2 * size, tl.sum(change, 0))


@kernel
def add_queries(made, given, vectors, reach, where, FORM: tl.constexpr):
    """Add the part of the farther keys to the gradients of a tile of queries; `given` are the fused part and s_i."""
    ROWS: tl.constexpr = FORM.rows
    part, changes = given
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    begin, rows = tl.program_id(0) * ROWS, where.queries - reach
    i = begin + tl.arange(0, ROWS)
    real = i < rows
    sum = load_tile(base(made, batch, head), made.row, reach + begin, real, FORM, ROWS, False, True).to(tl.float32)
    sum += load_tile(base(part, batch, head), part.row, begin, real, FORM, ROWS, False, True).to(tl.float32)
    if vectors.asked is not None:
        change = tl.load(changes + tl.program_id(1).to(tl.int64) * rows + i, mask=real, other=0.0)
        sum += change[:, None] * load_vector(vectors.asked, head, 0, FORM, False)[None, :]
    store_tile(base(made, batch, head), made.row, reach + begin, where.queries, sum, FORM, False)
