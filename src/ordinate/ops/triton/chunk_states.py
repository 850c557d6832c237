# pyrefly: ignore-errors
"""Kernels of linear attention with decay, in chunks: states between the chunks, and what is read of them.

    S_t = diag(e^{w_t}) S_{t-1} + k_t^T v_t;     y_t = q_t S_t,  or before the update  q_t S_{t-1} + (q_t u k_t) v_t

With a chunk's tokens as the rows of Q, K and V, its decays multiplied into them, and the products A of its pairs:

    S' = diag(e^{sum w}) S + (K e^leaving)^T V;     Y = A V + (Q e^entering) S

The backward pass has the same two forms. The gradients D of the states go backwards over the chunks; those of the
values come from A and D:

    D = diag(e^{sum w}) D' + (Q e^entering)^T dY;     dV = A^T dY + (K e^leaving) D'
"""

import triton.language as tl

from ordinate.ops.triton.chunk_decays import (
    entering,
    is_late,
    leaving,
    level_decays,
    level_pairs,
    load_logs,
    load_rows,
    pair_decays,
    store_rows,
)
from ordinate.ops.triton.kernel import kernel


@kernel
def scan_states(rows, columns, w, first, states, last, sizes, FORM: tl.constexpr):
    """Store the state before each chunk, and the one after all; backwards the gradients, of that after each chunk.

    A program has a block of the state of one head and goes from chunk to chunk.

    Args:
        rows: keys; backwards the queries.
        columns: values; backwards the gradient of the output.
        w: log decays.
        first: the state to begin with; backwards the gradient of the last.
        states: (batch * heads, chunks, width, depth).
        last: the state after all chunks; backwards the gradient of the first.
        sizes: heads, heads that share queries and keys, tokens, chunks.
        FORM: constants.
    """
    CHUNK: tl.constexpr = FORM.chunk
    heads, groups, tokens, chunks = sizes
    row, batch, head = tl.program_id(0), tl.program_id(0) // heads, tl.program_id(0) % heads
    j = tl.program_id(1) * FORM.rows + tl.arange(0, FORM.rows)
    e = tl.program_id(2) * FORM.columns + tl.arange(0, FORM.columns)
    state = load_rows(first, batch, head, j, e, FORM.width, FORM.depth)
    for step in range(0, chunks):
        chunk = chunks - 1 - step if FORM.back else step
        store_rows(states, row, chunk, j, e, FORM.width, FORM.depth, state)
        i = chunk * CHUNK + tl.arange(0, CHUNK)
        logs = load_logs(w, batch, head, i, j, tokens, FORM)
        part = load_rows(rows, batch, head // groups, i, j, tokens, FORM.width)
        part *= tl.exp(entering(logs, FORM) if FORM.back else leaving(logs, FORM))
        values = load_rows(columns, batch, head, i, e, tokens, FORM.depth)
        state *= tl.exp(tl.sum(logs, 0))[:, None]
        state = tl.dot(tl.trans(part), values, state, input_precision="ieee")
    store_rows(last, batch, head, j, e, FORM.width, FORM.depth, state)


@kernel
def pair_products(q, k, w, bonus, products, sizes, FORM: tl.constexpr):
    """Store the decayed products A of each chunk, of the pairs of a query (rows) and a key that is not later.

    A program has one chunk of one head and goes over blocks of channels.

    Args:
        q: queries.
        k: keys.
        w: log decays.
        bonus: of each head and channel, the weights of a token's own key; read before the update only.
        products: (batch * heads, chunks, tokens of a chunk, tokens of a chunk).
        sizes: as in `scan_states`.
        FORM: constants.
    """
    CHUNK: tl.constexpr = FORM.chunk
    heads, groups, tokens, chunks = sizes
    row, chunk = tl.program_id(0) // chunks, tl.program_id(0) % chunks
    batch, head = row // heads, row % heads
    t = tl.arange(0, CHUNK)
    i = chunk * CHUNK + t
    made = tl.zeros((CHUNK, CHUNK), tl.float32)
    for begin in range(0, FORM.width, FORM.rows):
        j = begin + tl.arange(0, FORM.rows)
        asks = load_rows(q, batch, head // groups, i, j, tokens, FORM.width)
        keys = load_rows(k, batch, head // groups, i, j, tokens, FORM.width)
        if FORM.shared:
            made = tl.dot(asks, tl.trans(keys), made, input_precision="ieee")
        else:
            logs = load_logs(w, batch, head, i, j, tokens, FORM)
            own = asks * keys
            if FORM.before:
                own *= tl.load(bonus + head * FORM.width + j, mask=j < FORM.width, other=0.0)[None, :]
            made += tl.where(t[:, None] == t[None, :], tl.sum(own, 1)[:, None], 0.0)
            for level in range(0, FORM.levels):
                mixed = tl.where(is_late(level, FORM), asks, keys) * level_decays(logs, level, FORM)
                pairs = tl.dot(mixed, tl.trans(mixed), input_precision="ieee")
                made += tl.where(level_pairs(level, FORM), pairs, 0.0)
    if FORM.shared:
        made *= pair_decays(load_logs(w, batch, head, i, t, tokens, FORM), FORM)
    store_rows(products, row, chunk, t, t, CHUNK, CHUNK, made)


@kernel
def read_states(rows, columns, w, states, products, out, sizes, FORM: tl.constexpr):
    """Store the outputs of a chunk, Y = A V + (Q e^entering) S; backwards dV = A^T dY + (K e^leaving) D'.

    A program has one chunk of one head and a block of the values' channels.

    Args:
        rows: queries; backwards the keys.
        columns: values; backwards the gradient of the output.
        w: log decays.
        states: by `scan_states`.
        products: by `pair_products`.
        out: outputs; backwards the gradient of the values.
        sizes: as in `scan_states`.
        FORM: constants.
    """
    CHUNK: tl.constexpr = FORM.chunk
    heads, groups, tokens, chunks = sizes
    row, chunk = tl.program_id(0) // chunks, tl.program_id(0) % chunks
    batch, head = row // heads, row % heads
    t = tl.arange(0, CHUNK)
    i = chunk * CHUNK + t
    e = tl.program_id(1) * FORM.columns + tl.arange(0, FORM.columns)
    pairs = load_rows(products, row, chunk, t, t, CHUNK, CHUNK)
    pairs = tl.trans(pairs) if FORM.back else pairs
    made = tl.dot(pairs, load_rows(columns, batch, head, i, e, tokens, FORM.depth), input_precision="ieee")
    for begin in range(0, FORM.width, FORM.rows):
        j = begin + tl.arange(0, FORM.rows)
        logs = load_logs(w, batch, head, i, j, tokens, FORM)
        part = load_rows(rows, batch, head // groups, i, j, tokens, FORM.width)
        part *= tl.exp(leaving(logs, FORM) if FORM.back else entering(logs, FORM))
        state = load_rows(states, row, chunk, j, e, FORM.width, FORM.depth)
        made = tl.dot(part, state, made, input_precision="ieee")
    store_rows(out, batch, head, i, e, tokens, FORM.depth, made)
