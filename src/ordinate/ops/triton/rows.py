# pyrefly: ignore-errors
"""Kernels that go through memory once: which keys are not finite, and the products of outputs and their gradients.

poison_j = sum_c 0 k_jc + sum_c 0 v_jc     0, or NaN where a number of key or value is not finite
delta_i = sum_c o_ic g_ic                  with the gradient g of the output o
"""

import triton.language as tl

from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.scores import INFINITY, base, load_tile


@kernel
def find_poison(k, v, poison, heads, tokens, FORM: tl.constexpr):
    """0 for keys that are finite and have finite values, NaN for others."""
    ROWS: tl.constexpr = FORM.rows
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    j = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    keys = load_tile(base(k, batch, head), k.row, tl.program_id(0) * ROWS, j < tokens, FORM, ROWS, False, True).to(
        tl.float32
    )
    values = load_tile(base(v, batch, head), v.row, tl.program_id(0) * ROWS, j < tokens, FORM, ROWS, True, True).to(
        tl.float32
    )
    found = tl.sum(keys * 0.0, 1) + tl.sum(values * 0.0, 1)
    tl.store(poison + tl.program_id(1).to(tl.int64) * tokens + j, found, mask=j < tokens)


@kernel
def find_delta(out, gradient, lse, delta, heads, tokens, FORM: tl.constexpr):
    """Sum of each query's output times its gradient; 0 for queries that see nothing."""
    ROWS: tl.constexpr = FORM.rows
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    made = load_tile(base(out, batch, head), out.row, tl.program_id(0) * ROWS, i < tokens, FORM, ROWS, True, True).to(
        tl.float32
    )
    upstream = load_tile(
        base(gradient, batch, head), gradient.row, tl.program_id(0) * ROWS, i < tokens, FORM, ROWS, True, True
    ).to(tl.float32)
    place = tl.program_id(1).to(tl.int64) * tokens + i
    norm = tl.load(lse + place, mask=i < tokens, other=-INFINITY)
    tl.store(delta + place, tl.where(norm == -INFINITY, 0.0, tl.sum(made * upstream, 1)), mask=i < tokens)
