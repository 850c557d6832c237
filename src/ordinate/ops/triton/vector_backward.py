# pyrefly: ignore-errors
"""Backward kernels of attention with a vector for each offset: gradients of keys and values, and of queries.

With the gradient c_ij of a score, s' the derivative of the soft cap, and the scale t:

    dq_i = sum over j of t s' c_ij k_j + c_ij asked[x]        dk_j = sum over i of t s' c_ij q_i + c_ij held[x]
    c_ij = weight(i, j) (dO_i . (v_j + carried[x]) - delta_i)  dv_j = sum over i of weight(i, j) dO_i

Each kernel owns what it writes: no atomic additions, the same bits at each call.
"""

import triton.language as tl

from ordinate.ops.triton.backward import load_softmax
from ordinate.ops.triton.bands import add_vectors, load_vector, query_bands, read_band, score_pairs
from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.ranges import round_down
from ordinate.ops.triton.scores import (
    INFINITY,
    base,
    load_documents,
    load_finite,
    load_tile,
    score_tile,
    store_tile,
    visible_tile,
)
from ordinate.ops.triton.vector_ends import load_shift


@kernel
def pair_gradients(tokens, rows, columns, place, inputs, FORM: tl.constexpr, KEYS_FIRST: tl.constexpr):
    """Weights of a tile, the gradients of its scores, and those of its products before the soft cap; 0 where hidden.

    `tokens` are queries, keys, outputs' gradients and values; `rows` index, document, log-sum-exp and delta of the
    queries; `columns` index, document and shift of the keys; `place` is as in `score_pairs`.
    """
    queries, keys, upstream, values = tokens
    i, asks, norm, delta = rows
    j, holds, shift = columns
    bias, vectors, where, head = inputs
    score, squashed = score_pairs((queries, keys), (i, j), shift, place, inputs, FORM, KEYS_FIRST)
    if KEYS_FIRST:
        slope = tl.dot(values, tl.trans(upstream), input_precision=FORM.products)
        seen = visible_tile(i[None, :], j[:, None], asks[None, :], holds[:, None], where, FORM)
        level, share = norm[None, :], delta[None, :]
    else:
        slope = tl.dot(upstream, tl.trans(values), input_precision=FORM.products)
        seen = visible_tile(i[:, None], j[None, :], asks[:, None], holds[None, :], where, FORM)
        level, share = norm[:, None], delta[:, None]
    if vectors.carried is not None:
        entries = vectors.carried, head, place, bias.last
        slope += read_band(upstream, entries, FORM, False, KEYS_FIRST, True)
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
    queries = load_finite(base(q, batch, head), q.row, begin, real, FORM, SIZE, True)
    upstream = load_tile(base(gradient, batch, head), gradient.row, begin, real, FORM, SIZE, True, True)
    asks = load_documents(where.q_document, where, batch, i, where.queries, FORM)
    return queries, upstream, (i, asks, norm, delta)


@kernel
def load_keys(k, v, numbers, batch, head, begin, where, FORM: tl.constexpr):
    """Load a tile of keys and values of a query head; zeros for those that are not finite, whose shift is NaN.

    `numbers` are those of the keys, or None: see `load_shift`.
    """
    SIZE: tl.constexpr = FORM.rows
    key_head = head // FORM.groups
    j = begin + tl.arange(0, SIZE)
    shift = load_shift(numbers, where, (batch, head), j, FORM, True)
    real = (j < where.keys) & (shift == shift)
    keys = load_tile(base(k, batch, key_head), k.row, begin, real, FORM, SIZE, False, True)
    values = load_tile(base(v, batch, key_head), v.row, begin, real, FORM, SIZE, True, True)
    holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
    return keys, values, (j, holds, shift)


@kernel
def vector_backward_keys(given, softmax, made, bias, vectors, ends, where, FORM: tl.constexpr):
    """Gradients of a tile of keys and values, over all queries of their group of heads; keys are in rows.

    `given` are queries, keys, values and the outputs' gradient; `softmax` the log-sum-exp and delta of each query;
    `made` the gradients of keys and values.
    """
    SIZE: tl.constexpr = FORM.rows
    WIDTH: tl.constexpr = FORM.padded_width
    DEPTH: tl.constexpr = FORM.padded_depth
    HIDDEN: tl.constexpr = FORM.windowed or FORM.documents
    q, k, v, gradient = given
    dk, dv = made
    tile = tl.program_id(0)
    batch, key_head = tl.program_id(1) // where.key_heads, tl.program_id(1) % where.key_heads
    keys, values, columns = load_keys(k, v, None, batch, key_head * FORM.groups, tile * SIZE, where, FORM)
    state = (
        tl.zeros([SIZE, WIDTH], tl.float32),
        tl.zeros([SIZE, DEPTH], tl.float32),
        # of the terms that the scale does not multiply
        tl.zeros([SIZE, WIDTH], tl.float32),
    )
    rows, held, inputs = (keys, values, columns), (q, gradient), (bias, vectors, where, batch, key_head)
    low, begin, stop, high = query_bands(tile * SIZE, (batch, key_head), bias, where, FORM)
    # the last tile may have fewer queries: unless all are masked, it is one of those between the ends
    whole = high
    if FORM.far:
        if not HIDDEN:
            whole = tl.maximum(stop, round_down(high, SIZE))
        state = add_far_queries(state, rows, held, inputs, (stop, whole), ends.past, FORM, HIDDEN)
        if not FORM.causal:
            state = add_far_queries(state, rows, held, inputs, (low, begin), ends.future, FORM, HIDDEN)
    bounds = begin, stop, whole, high
    state = add_near_queries(state, rows, held, inputs, bounds, (tile, softmax, ends.between), FORM)
    to_keys, to_values, beside = state
    to_keys = to_keys * where.scale + beside
    store_tile(base(dk, batch, key_head), dk.row, tile * SIZE, where.keys, to_keys, FORM, False)
    store_tile(base(dv, batch, key_head), dv.row, tile * SIZE, where.keys, to_values, FORM, True)


@kernel
def add_near_queries(state, rows, held, inputs, bounds, place, FORM: tl.constexpr):
    """Add two ranges of queries of all heads of a group to the gradients of a tile of keys and values.

    `place` are the tile of keys, log-sum-exp and delta, and the numbers of the keys (`Ends.between`).
    """
    SIZE: tl.constexpr = FORM.rows
    to_keys, to_values, beside = state
    keys, values, columns = rows
    j, holds, shift = columns
    q, gradient = held
    bias, vectors, where, batch, key_head = inputs
    tile, softmax, numbers = place
    low, stop, other, high = bounds
    first = tl.cdiv(stop - low, SIZE)
    tiles = first + tl.cdiv(high - other, SIZE)
    # of a head; where each key has several, they cannot wait for the end of the loop
    changes = tl.zeros([SIZE], tl.float32)
    # one loop over heads and tiles: around an inner loop, what it does not change would fill the registers
    for step in tl.range(0, FORM.groups * tiles):
        head, nth = key_head * FORM.groups + step // tiles, step % tiles
        begin = tl.where(nth < first, low + nth * SIZE, other + (nth - first) * SIZE)
        entry = tile * SIZE - begin + bias.origin
        given = bias, vectors, where, head
        queries, upstream, about = load_queries(q, gradient, softmax, batch, head, begin, where, FORM)
        if numbers is not None:
            shift = load_shift(numbers, where, (batch, head), j, FORM, True)
        tokens = queries, keys, upstream, values
        weights, change, inner = pair_gradients(tokens, about, (j, holds, shift), entry, given, FORM, True)
        to_values = tl.dot(weights.to(upstream.dtype), upstream, to_values, input_precision=FORM.products)
        to_keys = tl.dot(inner.to(queries.dtype), queries, to_keys, input_precision=FORM.products)
        if vectors.held is not None:
            beside = add_vectors(beside, change, (vectors.held, head, entry, bias.last), FORM, True, False)
        if vectors.lone is not None:
            changes += tl.sum(change, 1)
            if FORM.groups > 1:
                beside = add_shared(beside, changes, vectors.lone, head, 0, FORM)
                changes = tl.zeros([SIZE], tl.float32)
    if vectors.lone is not None:
        beside = add_shared(beside, changes, vectors.lone, key_head, 0, FORM)
    return to_keys, to_values, beside


@kernel
def add_shared(beside, changes, band, head, entry, FORM: tl.constexpr):
    """Add a vector that all pairs of a key share, times the sum of the gradients of their scores."""
    return beside + changes[:, None] * load_vector(band, head, entry, FORM, False)[None, :]


@kernel
def add_far_queries(state, rows, held, inputs, bounds, end, FORM: tl.constexpr, MASKED: tl.constexpr):
    """Add queries beyond an end of the vectors, of all heads of a group, to the gradients of a tile of keys."""
    SIZE: tl.constexpr = FORM.rows
    to_keys, to_values, beside = state
    keys, values, columns = rows
    j, holds, shift = columns
    q, gradient = held
    bias, vectors, where, batch, key_head = inputs
    low, high = bounds
    tiles = tl.cdiv(high - low, SIZE)
    changes = tl.zeros([SIZE], tl.float32)
    for step in tl.range(0, FORM.groups * tiles):
        head = key_head * FORM.groups + step // tiles
        begin = low + step % tiles * SIZE
        i = begin + tl.arange(0, SIZE)
        norm, delta = load_softmax((end.norm, end.delta), batch, i, where, head, MASKED)
        real = norm < INFINITY
        queries = load_finite(base(q, batch, head), q.row, begin, real, FORM, SIZE, MASKED)
        upstream = load_tile(base(gradient, batch, head), gradient.row, begin, real, FORM, SIZE, True, MASKED)
        if end.keys is not None:
            shift = load_shift(end.keys, where, (batch, head), j, FORM, True)
        products = tl.dot(keys, tl.trans(queries), input_precision=FORM.products)
        given = bias, where, head
        score, squashed = score_tile(products, i[None, :], j[:, None], None, given, shift[:, None], FORM, False)
        weights = tl.exp2(score - norm[None, :])
        change = weights * (tl.dot(values, tl.trans(upstream), input_precision=FORM.products) - delta[None, :])
        if MASKED:
            asks = load_documents(where.q_document, where, batch, i, where.queries, FORM)
            seen = visible_tile(i[None, :], j[:, None], asks[None, :], holds[:, None], where, FORM)
            seen = seen & real[None, :]
            weights, change = tl.where(seen, weights, 0.0), tl.where(seen, change, 0.0)
        to_values = tl.dot(weights.to(upstream.dtype), upstream, to_values, input_precision=FORM.products)
        changes += tl.sum(change, 1)
        if FORM.groups > 1:
            beside = add_ends(beside, changes, vectors, head, end.entry, FORM)
            changes = tl.zeros([SIZE], tl.float32)
        if FORM.capped:
            change *= 1.0 - squashed * squashed
        to_keys = tl.dot(change.to(queries.dtype), queries, to_keys, input_precision=FORM.products)
    return to_keys, to_values, add_ends(beside, changes, vectors, key_head, end.entry, FORM)


@kernel
def add_ends(beside, changes, vectors, head, entry, FORM: tl.constexpr):
    """Add the vectors at an end, and the one of all offsets, as `add_shared`."""
    if vectors.held is not None:
        beside = add_shared(beside, changes, vectors.held, head, entry, FORM)
    if vectors.lone is not None:
        beside = add_shared(beside, changes, vectors.lone, head, 0, FORM)
    return beside
