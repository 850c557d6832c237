# pyrefly: ignore-errors
"""Kernel of the scan over chunks, S_c = M_c S_(c-1) + A_c with matrices M_c, and its launch."""

from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from ordinate.ops.triton.kernel import kernel, launch, power_of_two

# most channels of values of a program, and most terms of a sum at a time: larger ones spill registers
COLUMNS, PART = 16, 32
# least size of an operand of a product
SMALLEST = 16


class Form(NamedTuple):
    """Constants of a compiled kernel.

    Args:
        width: rows of a state.
        depth: columns of a state.
        rows: a power of two, not less than the width.
        columns: columns of a program, a power of two.
        part: terms of a sum at a time, a power of two.
        back: with transposed matrices, from the last chunk to the first.
    """

    width: Any
    depth: Any
    rows: Any
    columns: Any
    part: Any
    back: Any


def scan(start: Tensor, kept: Tensor, added: Tensor, back: bool) -> tuple[Tensor, Tensor]:
    """Return the state before each chunk, and the one after the last; backwards with M_c^T, from the last chunk on.

    Args:
        start: the first state (batch, heads, width, depth), in float32, as are the others.
        kept: M_c (batch, heads, chunks, width, width).
        added: A_c (batch, heads, chunks, width, depth).
        back: go backwards.
    """
    start, kept, added = (x.contiguous() for x in (start, kept, added))
    (batch, heads, chunks, width), depth = added.shape[:4], added.shape[4]
    states, last = torch.empty_like(added), torch.empty_like(start)
    columns = min(COLUMNS, _padded(depth))
    form = Form(width, depth, _padded(width), columns, min(PART, _padded(width)), back)
    grid = batch * heads, -(-depth // columns)
    options = {"num_warps": 4 if width <= 64 else 8, "num_stages": 1}
    launch(scan_chunks, grid, (start, kept, added, states, last, chunks, form), options)
    return states, last


def _padded(size: int) -> int:
    return max(SMALLEST, power_of_two(size))


@kernel
def load_block(x, i, e, FORM: tl.constexpr):
    """Rows i and columns e of a state; 0 outside."""
    real = (i < FORM.width)[:, None] & (e < FORM.depth)[None, :]
    return tl.load(x + i[:, None] * FORM.depth + e[None, :], mask=real, other=0.0)


@kernel
def store_block(x, i, e, block, FORM: tl.constexpr):
    """Store rows i and columns e of a state."""
    inside = (i < FORM.width)[:, None] & (e < FORM.depth)[None, :]
    tl.store(x + i[:, None] * FORM.depth + e[None, :], block, mask=inside)


@kernel
def load_kept(x, i, j, FORM: tl.constexpr):
    """Rows i and columns j of a matrix, backwards of its transpose; 0 outside."""
    real = (i < FORM.width)[:, None] & (j < FORM.width)[None, :]
    places = j[None, :] * FORM.width + i[:, None] if FORM.back else i[:, None] * FORM.width + j[None, :]
    return tl.load(x + places, mask=real, other=0.0)


@kernel
def scan_chunks(start, kept, added, states, last, chunks, FORM: tl.constexpr):
    """Store the state before each chunk, and the one after all: S_c = M_c S_(c-1) + A_c.

    A program has some columns of the state of one head and goes from chunk to chunk. Products read the state in parts
    of its rows, from where it was just stored.

    Args:
        start: the first state of each head (batch * heads, width, depth).
        kept: M_c (batch * heads, chunks, width, width).
        added: A_c (batch * heads, chunks, width, depth).
        states: to store to, of the shape of `added`.
        last: to store to, of the shape of `start`.
        chunks: number of chunks.
        FORM: constants.
    """
    SIZE: tl.constexpr = FORM.width * FORM.depth
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, FORM.rows)
    e = tl.program_id(1) * FORM.columns + tl.arange(0, FORM.columns)
    state = load_block(start + row * SIZE, i, e, FORM)
    for step in range(0, chunks):
        chunk = row * chunks + (chunks - 1 - step if FORM.back else step)
        store_block(states + chunk * SIZE, i, e, state, FORM)
        state = load_block(added + chunk * SIZE, i, e, FORM)
        # what other threads have stored is read below
        tl.debug_barrier()
        for begin in range(0, FORM.width, FORM.part):
            j = begin + tl.arange(0, FORM.part)
            transition = load_kept(kept + chunk * FORM.width * FORM.width, i, j, FORM)
            before = load_block(states + chunk * SIZE, j, e, FORM)
            state = tl.dot(transition, before, state, input_precision="ieee")
    store_block(last + row * SIZE, i, e, state, FORM)
