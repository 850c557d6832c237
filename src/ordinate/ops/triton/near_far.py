# pyrefly: ignore-errors
"""Causal attention whose bias is constant from some distance on: PyTorch's fused attention there, Triton nearer.

Let r be the distance from which on the bias of a head is c. Query i sees the keys up to i - r with the bias c alone:
shifted by r, that is causal attention without a bias, of output o' and log-sum-exp l'. The nearer keys are a window
of r keys, of output o and log-sum-exp l. With L = log(exp(l) + exp(l' + c)) the output is

    exp(l - L) o + exp(l' + c - L) o'

In the backward pass both parts are given the whole output and the whole log-sum-exp, the fused one L - c. The
gradients of a row's scores sum to 0, so that of c is minus the sum of those of all nearer biases.
"""

import math
from collections.abc import Sequence
from typing import Any

import triton.language as tl
from torch import Tensor

from ordinate.ops.triton import attention
from ordinate.ops.triton.attention import Added, Gradients, Prepared, Problem, describe
from ordinate.ops.triton.bands import Vectors, load_vector
from ordinate.ops.triton.fused import fused_attention
from ordinate.ops.triton.kernel import contiguous_channels, kernel, launch, matrix
from ordinate.ops.triton.scores import LOG2E, base, load_tile, store_tile
from ordinate.ops.triton.tiles import Tile
from ordinate.ops.triton.vector_ends import query_shift

# queries per program of the kernels that put both parts together
TILE = Tile(64, 64, 8, 1)


def forward(given: Problem) -> tuple[Tensor, ...]:
    """Return what `ordinate.ops.triton.attention.forward` does.

    Args:
        given: a causal problem, as many queries as keys, whose table begins where the bias is constant; no window,
            documents, sinks or cap.
    """
    # first, so that the GPU computes it while the host launches the kernels of the nearer keys
    farther = far(given)
    out, lse, *kept = attention.forward(near(given))
    join(describe(given), Vectors(None, None, None, None), farther, (out, lse))
    return out, lse, *kept


def backward(gradient: Tensor, given: Problem, results: Sequence[Tensor], learned: bool) -> Gradients:
    """Return the gradients as `ordinate.ops.triton.attention.backward` does."""
    reach, (out, lse) = given.origin, results[:2]
    gradient = contiguous_channels(gradient)
    norm = (lse[:, :, reach:] * math.log(2) - given.table[:, :1]).contiguous()
    # first, as in the forward pass
    farther = far_gradients(gradient, given, out[:, :, reach:], norm)
    added = Added(*(contiguous_channels(x) for x in farther))
    made = attention.backward(gradient, near(given), results, learned, added)
    if made.table is not None:
        made.table[:, 0] = -made.table[:, 1:].sum(1)
    return made


def near(given: Problem) -> Problem:
    """Return the problem of the keys whose bias is not the constant one."""
    return given._replace(window=given.origin, far=False)


def far(given: Problem) -> tuple[Tensor, Tensor]:
    """Return output and natural log-sum-exp of the keys with the constant bias, without it, where there are any."""
    out, norm = fused_attention(given.q.device).forward(*_shifted(given), given.scale)
    return contiguous_channels(out), norm.contiguous()


def far_gradients(gradient: Tensor, given: Problem, out: Tensor, norm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what these keys give to the gradients of queries, keys and values.

    Args:
        gradient: of the output of all queries.
        given: the problem.
        out: the output of the queries that see such keys.
        norm: their natural log-sum-exp, less what is added to all of their scores.
    """
    fused, upstream = fused_attention(out.device), gradient[:, :, given.origin :]
    return fused.backward(upstream, *_shifted(given), out, norm, given.scale)


def _shifted(given: Problem) -> tuple[Tensor, Tensor, Tensor]:
    # PyTorch's kernels, called by name, neither check nor copy tensors whose channels are not contiguous
    reach, (q, k, v) = given.origin, (contiguous_channels(x) for x in given[:3])
    return q[:, :, reach:], k[:, :, :-reach], v[:, :, :-reach]


def join(ready: Prepared, vectors: Vectors, farther: tuple[Tensor, Tensor], made: tuple[Tensor, Tensor]) -> None:
    """Add the part of the farther keys to output and log-sum-exp in units of log2, in place.

    Args:
        ready: the problem.
        vectors: its vectors; those of their first entry belong to all farther keys.
        farther: output and natural log-sum-exp of the farther keys.
        made: output and log-sum-exp of the nearer keys.
    """
    given, (out, lse) = ready.problem, made
    grid = -(-farther[1].shape[2] // TILE.rows), ready.grid[0]
    parts: Any = (matrix(given.q), matrix(farther[0]), farther[1]), (matrix(out), lse), (ready.bias, vectors)
    launch(add_far, grid, (*parts, given.origin, ready.where, ready.form(TILE)), TILE.options)


@kernel
def add_far(given, made, inputs, reach, where, FORM: tl.constexpr):
    """Add the part of the farther keys to a tile of outputs and log-sum-exp; `given` are queries, output and norm."""
    ROWS: tl.constexpr = FORM.rows
    q, far, norm = given
    out, lse = made
    bias, vectors = inputs
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    begin, rows = tl.program_id(0) * ROWS, where.queries - reach
    i = begin + tl.arange(0, ROWS)
    if vectors.asked is not None:
        queries = load_tile(base(q, batch, head), q.row, reach + begin, i < rows, FORM, ROWS, False, True)
        shift = query_shift(queries, 0, (bias, vectors, head), FORM)
    else:
        shift = query_shift(None, 0, (bias, vectors, head), FORM)
    place = lse + tl.program_id(1).to(tl.int64) * where.queries + reach + i
    near = tl.load(place, mask=i < rows, other=0.0)
    farther = tl.load(norm + tl.program_id(1).to(tl.int64) * rows + i, mask=i < rows, other=0.0) * LOG2E + shift
    top = tl.maximum(near, farther)
    total = top + tl.log2(tl.exp2(near - top) + tl.exp2(farther - top))
    mine = load_tile(base(out, batch, head), out.row, reach + begin, i < rows, FORM, ROWS, True, True).to(tl.float32)
    other = load_tile(base(far, batch, head), far.row, begin, i < rows, FORM, ROWS, True, True).to(tl.float32)
    if vectors.carried is not None:
        other += load_vector(vectors.carried, head, 0, FORM, True)[None, :]
    sum = mine * tl.exp2(near - total)[:, None] + other * tl.exp2(farther - total)[:, None]
    store_tile(base(out, batch, head), out.row, reach + begin, where.queries, sum, FORM, True)
    # Triton may load `near` once for each layout that needs it: other threads must have theirs
    tl.debug_barrier()
    tl.store(place, total, mask=i < rows)
