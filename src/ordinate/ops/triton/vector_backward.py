# pyrefly: ignore-errors
"""Backward kernels of attention with a vector for each offset: gradients of keys and values, and of queries.

With the gradient c_ij of a score, s' the derivative of the soft cap, and the scale t:

    dq_i = sum over j of t s' c_ij k_j + c_ij asked[x]        dk_j = sum over i of t s' c_ij q_i + c_ij held[x]
    c_ij = weight(i, j) (dO_i . (v_j + carried[x]) - delta_i)  dv_j = sum over i of weight(i, j) dO_i

Each kernel owns what it writes: no atomic additions, the same bits at each call.
"""

import triton.language as tl

from ordinate.ops.triton.backward import load_softmax
from ordinate.ops.triton.bands import add_vectors, load_vector, products_with, query_bands, score_pairs
from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.scores import (
    INFINITY,
    base,
    load_documents,
    load_poison,
    load_tile,
    store_tile,
    visible_tile,
)


@kernel
def pair_gradients(
    tokens, rows, columns, place, inputs, FORM: tl.constexpr, KEYS_FIRST: tl.constexpr, FAR: tl.constexpr
):
    """Weights of a tile, the gradients of its scores, and those of its products before the soft cap; 0 where hidden.

    `tokens` are queries, keys, outputs' gradients and values; `rows` index, document, log-sum-exp and delta of the
    queries; `columns` index, document and poison of the keys; `place` and what FAR means are as in `score_pairs`.
    """
    queries, keys, upstream, values = tokens
    i, asks, norm, delta = rows
    j, holds, poison = columns
    bias, vectors, where, head = inputs
    score, squashed = score_pairs((queries, keys), (i, j), poison, place, inputs, FORM, KEYS_FIRST, FAR)
    if KEYS_FIRST:
        slope = tl.dot(values, tl.trans(upstream), input_precision="ieee")
        seen = visible_tile(i[None, :], j[:, None], asks[None, :], holds[:, None], where, FORM)
        level, share = norm[None, :], delta[None, :]
    else:
        slope = tl.dot(upstream, tl.trans(values), input_precision="ieee")
        seen = visible_tile(i[:, None], j[None, :], asks[:, None], holds[None, :], where, FORM)
        level, share = norm[:, None], delta[:, None]
    if vectors.carried is not None:
        entries = vectors.carried, head, place, bias.last
        slope += products_with(upstream, entries, FORM, False, KEYS_FIRST, True, FAR)
    # neither queries that see nothing nor those that are NaN
    seen = seen & (level < INFINITY)
    weights = tl.where(seen, tl.exp2(score - level), 0.0)
    change = tl.where(seen, weights * (slope - share), 0.0)
    inner = change
    if FORM.capped:
        inner = tl.where(seen, change * (1.0 - squashed * squashed), 0.0)
    return weights, change, inner


@kernel
def load_queries(q, gradient, softmax, batch, head, begin, where, FORM: tl.constexpr):
    """Load a tile of queries and of the gradients of their outputs; zeros for those that see nothing or are NaN."""
    SIZE: tl.constexpr = FORM.rows
    i = begin + tl.arange(0, SIZE)
    norm, delta = load_softmax(softmax, batch, i, where, head, True)
    # a weight of zero would not hide NaN
    real = norm < INFINITY
    queries = load_tile(base(q, batch, head), q.row, begin, real, FORM, SIZE, False, True)
    upstream = load_tile(base(gradient, batch, head), gradient.row, begin, real, FORM, SIZE, True, True)
    asks = load_documents(where.q_document, where, batch, i, where.queries, FORM)
    return queries, upstream, (i, asks, norm, delta)


@kernel
def load_keys(k, v, batch, key_head, begin, where, FORM: tl.constexpr):
    """Load a tile of keys and values; zeros for those that are not finite, which their poison marks."""
    SIZE: tl.constexpr = FORM.rows
    j = begin + tl.arange(0, SIZE)
    poison = load_poison(where, batch, key_head, j, True)
    real = (j < where.keys) & (poison == 0.0)
    keys = load_tile(base(k, batch, key_head), k.row, begin, real, FORM, SIZE, False, True)
    values = load_tile(base(v, batch, key_head), v.row, begin, real, FORM, SIZE, True, True)
    holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
    return keys, values, (j, holds, poison)


@kernel
def vector_backward_keys(given, softmax, made, bias, vectors, where, FORM: tl.constexpr):
    """Gradients of a tile of keys and values, over all queries of their group of heads; keys are in rows.

    `given` are queries, keys, values and the outputs' gradient; `softmax` the log-sum-exp and delta of each query;
    `made` the gradients of keys and values.
    """
    SIZE: tl.constexpr = FORM.rows
    WIDTH: tl.constexpr = FORM.padded_width
    DEPTH: tl.constexpr = FORM.padded_depth
    q, k, v, gradient = given
    dk, dv = made
    tile = tl.program_id(0)
    batch, key_head = tl.program_id(1) // where.key_heads, tl.program_id(1) % where.key_heads
    keys, values, columns = load_keys(k, v, batch, key_head, tile * SIZE, where, FORM)
    state = (
        tl.zeros([SIZE, WIDTH], tl.float32),
        tl.zeros([SIZE, DEPTH], tl.float32),
        # of the terms that the scale does not multiply
        tl.zeros([SIZE, WIDTH], tl.float32),
    )
    rows, held, inputs = (keys, values, columns), (q, gradient, softmax), (bias, vectors, where, batch, key_head)
    low, begin, stop, high = query_bands(tile * SIZE, (batch, key_head), bias, where, FORM)
    if FORM.far:
        state = add_vector_queries(state, rows, held, inputs, (stop, high), (tile, 0), FORM, True)
        if not FORM.causal:
            state = add_vector_queries(state, rows, held, inputs, (low, begin), (tile, bias.last), FORM, True)
    state = add_vector_queries(state, rows, held, inputs, (begin, stop), (tile, 0), FORM, False)
    to_keys, to_values, beside = state
    to_keys = to_keys * where.scale + beside
    store_tile(base(dk, batch, key_head), dk.row, tile * SIZE, where.keys, to_keys, FORM, False)
    store_tile(base(dv, batch, key_head), dv.row, tile * SIZE, where.keys, to_values, FORM, True)


@kernel
def add_vector_queries(state, rows, held, inputs, bounds, places, FORM: tl.constexpr, FAR: tl.constexpr):
    """Add a range of queries of all heads of a group to the gradients of a tile of keys and values.

    `places` are the tile of keys, and if FAR the entry that all pairs have.
    """
    SIZE: tl.constexpr = FORM.rows
    to_keys, to_values, beside = state
    keys, values, columns = rows
    q, gradient, softmax = held
    bias, vectors, where, batch, key_head = inputs
    tile, end = places
    low, high = bounds
    tiles = tl.cdiv(high - low, SIZE)
    # one loop over heads and tiles: around an inner loop, what it does not change would fill the registers
    for step in tl.range(0, FORM.groups * tiles):
        head = key_head * FORM.groups + step // tiles
        begin = low + step % tiles * SIZE
        place = end if FAR else tile * SIZE - begin + bias.origin
        given = bias, vectors, where, head
        queries, upstream, about = load_queries(q, gradient, softmax, batch, head, begin, where, FORM)
        tokens = queries, keys, upstream, values
        weights, change, inner = pair_gradients(tokens, about, columns, place, given, FORM, True, FAR)
        to_values = tl.dot(weights.to(upstream.dtype), upstream, to_values, input_precision="ieee")
        to_keys = tl.dot(inner.to(queries.dtype), queries, to_keys, input_precision="ieee")
        if vectors.held is not None:
            entries = vectors.held, head, place, bias.last
            beside = add_vectors(beside, change, entries, FORM, True, False, FAR)
        if vectors.lone is not None:
            beside += tl.sum(change, 1)[:, None] * load_vector(vectors.lone, head, 0, FORM, False)[None, :]
    return to_keys, to_values, beside
