# pyrefly: ignore-errors
"""Backward kernel of attention with a vector for each offset: gradients of queries, and of what far pairs share.

    dq_i = sum over j of t s' c_ij k_j + c_ij asked[x]

with the gradient c_ij of a score, the scale t and the derivative s' of the soft cap, as in `vector_backward`. Beyond
the ends of the vectors all pairs of a side have the one at the end, whose gradient is a sum over most of all pairs:
the sums of each row, or column, are taken on the way. The rest of the vectors' gradients is that of `vector_sums`.
"""

import triton.language as tl

from ordinate.ops.triton.bands import add_vectors, key_bands, load_vector
from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.scores import (
    INFINITY,
    base,
    load_documents,
    load_tile,
    score_tile,
    store_tile,
    visible_tile,
)
from ordinate.ops.triton.vector_backward import load_keys, load_queries, pair_gradients
from ordinate.ops.triton.vector_ends import beyond, load_shift

# vectors of a program's share: for each of two ends those of queries, keys and values, and the sum for the table; and
# the one of all offsets
SHARES = tl.constexpr(9)


@kernel
def vector_backward_queries(given, softmax, made, bias, vectors, ends, where, FORM: tl.constexpr):
    """Gradients of a tile of queries, and its shares of the gradients of vectors that many pairs have.

    `made` are the gradients of the queries, and the shares by sequence, head and tile, of which only those are
    written that there are. FORM.learned says whether they are wanted.
    """
    SIZE: tl.constexpr = FORM.rows
    WIDTH: tl.constexpr = FORM.padded_width
    HIDDEN: tl.constexpr = FORM.windowed or FORM.documents
    q, k, v, gradient = given
    dq, shares = made
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    LONGEST: tl.constexpr = FORM.width if FORM.width > FORM.depth else FORM.depth
    at = shares + (tl.program_id(1) * tl.num_programs(0) + tile).to(tl.int64) * (SHARES * LONGEST)
    rows = load_queries(q, gradient, softmax, batch, head, tile * SIZE, where, FORM)
    # of products, of the terms that the scale does not multiply, and, where a cap is between, of keys
    state = (
        tl.zeros([SIZE, WIDTH], tl.float32),
        tl.zeros([SIZE, WIDTH], tl.float32),
        tl.zeros([WIDTH], tl.float32),
    )
    held, inputs = (k, v, batch), (bias, vectors, where, head)
    low, begin, stop, high = key_bands(tile * SIZE, (batch, head), bias, where, FORM)
    if FORM.far:
        state = add_far_scores(state, rows, held, inputs, (low, begin), (ends.past, at), FORM, HIDDEN)
        if not FORM.causal:
            # the last tile may have fewer keys
            place = ends.future, at + 4 * LONGEST
            state = add_far_scores(state, rows, held, inputs, (stop, high), place, FORM, True)
    state = add_near_scores(state, rows, held, inputs, (begin, stop), (tile, ends.between), FORM)
    to_queries, beside, to_lone = state
    if FORM.learned and vectors.lone is not None:
        channel = tl.arange(0, WIDTH)
        if not FORM.capped:
            to_lone = tl.sum(to_queries, 0)
        tl.store(at + 8 * LONGEST + channel, to_lone, mask=channel < FORM.width)
    to_queries = to_queries * where.scale + beside
    store_tile(base(dq, batch, head), dq.row, tile * SIZE, where.queries, to_queries, FORM, False)


@kernel
def add_near_scores(state, rows, held, inputs, bounds, place, FORM: tl.constexpr):
    """Add a range of keys to the gradients of a tile of queries.

    `place` are the tile of queries and the numbers of the keys (`Ends.between`).
    """
    SIZE: tl.constexpr = FORM.rows
    to_queries, beside, to_lone = state
    queries, upstream, about = rows
    k, v, batch = held
    bias, vectors, where, head = inputs
    tile, numbers = place
    low, high = bounds
    for step in tl.range(0, tl.cdiv(high - low, SIZE)):
        begin = low + step * SIZE
        entry = begin - tile * SIZE + bias.origin
        keys, values, columns = load_keys(k, v, numbers, batch, head, begin, where, FORM)
        tokens = queries, keys, upstream, values
        _weights, change, inner = pair_gradients(tokens, about, columns, entry, inputs, FORM, False)
        to_queries = tl.dot(inner.to(keys.dtype), keys, to_queries, input_precision=FORM.products)
        if vectors.asked is not None:
            beside = add_vectors(beside, change, (vectors.asked, head, entry, bias.last), FORM, False, False)
        if FORM.learned and FORM.capped and vectors.lone is not None:
            to_lone += times_keys(change, keys)
    return to_queries, beside, to_lone


@kernel
def times_keys(change, keys):
    """Sum of the keys of a tile, each times the gradients of its scores."""
    return tl.sum(tl.sum(change, 0)[:, None] * keys.to(tl.float32), 0)


@kernel
def add_far_scores(state, rows, held, inputs, bounds, place, FORM: tl.constexpr, MASKED: tl.constexpr):
    """Add keys beyond one end of the vectors, and store their share of the gradients there.

    `place` are the end and the address of the share.
    """
    SIZE: tl.constexpr = FORM.rows
    WIDTH: tl.constexpr = FORM.padded_width
    to_queries, beside, to_lone = state
    queries, upstream, about = rows
    i, asks, norm, delta = about
    bias, vectors, where, head = inputs
    end, at = place
    low, high = bounds
    norm, delta = beyond(queries, upstream, norm, delta, end.entry, (bias, vectors, head), FORM)
    changes, shares = tl.zeros([SIZE], tl.float32), tl.zeros([SIZE], tl.float32)
    to_held = -tl.sum(to_queries, 0)
    if FORM.capped:
        to_held = tl.zeros([WIDTH], tl.float32)
    for step in tl.range(0, tl.cdiv(high - low, SIZE)):
        keys, values, columns = load_far_keys(held, end, low + step * SIZE, (where, head), FORM, MASKED)
        tokens, given = (queries, keys, upstream, values), (bias, where, held[2], head)
        weights, change, squashed = far_pairs(tokens, (i, asks, norm, delta), columns, given, FORM, MASKED)
        changes += tl.sum(change, 1)
        if FORM.learned and vectors.carried is not None:
            shares += tl.sum(weights, 1)
        if FORM.capped:
            if FORM.learned:
                to_held += times_keys(change, keys)
            change *= 1.0 - squashed * squashed
        to_queries = tl.dot(change.to(keys.dtype), keys, to_queries, input_precision=FORM.products)
    if not FORM.capped:
        to_held += tl.sum(to_queries, 0)
    if vectors.asked is not None:
        beside += changes[:, None] * load_vector(vectors.asked, head, end.entry, FORM, False)[None, :]
    if FORM.learned:
        to_lone += to_held
        store_shares((changes, to_held, shares), (queries, upstream), vectors, at, FORM)
    return to_queries, beside, to_lone


@kernel
def load_far_keys(held, end, begin, inputs, FORM: tl.constexpr, MASKED: tl.constexpr):
    """Load a tile of keys and values beyond an end, and their index and shift."""
    SIZE: tl.constexpr = FORM.rows
    k, v, batch = held
    where, head = inputs
    key_head = head // FORM.groups
    j = begin + tl.arange(0, SIZE)
    shift = load_shift(end.keys, where, (batch, head), j, FORM, MASKED)
    real = (j < where.keys) & (shift == shift)
    keys = load_tile(base(k, batch, key_head), k.row, begin, real, FORM, SIZE, False, MASKED)
    values = load_tile(base(v, batch, key_head), v.row, begin, real, FORM, SIZE, True, MASKED)
    return keys, values, (j, shift)


@kernel
def far_pairs(tokens, about, columns, inputs, FORM: tl.constexpr, MASKED: tl.constexpr):
    """Weights of a tile beyond an end, the gradients of its scores, and the soft cap's tanh.

    `about` are index, document, log-sum-exp and delta of the queries, the last two beyond that end, and `columns`
    index and shift of the keys.
    """
    queries, keys, upstream, values = tokens
    i, asks, norm, delta = about
    j, shift = columns
    bias, where, batch, head = inputs
    products = tl.dot(queries, tl.trans(keys), input_precision=FORM.products)
    given = bias, where, head
    score, squashed = score_tile(products, i[:, None], j[None, :], None, given, shift[None, :], FORM, False)
    weights = tl.exp2(score - norm[:, None])
    change = weights * (tl.dot(upstream, tl.trans(values), input_precision=FORM.products) - delta[:, None])
    if MASKED:
        holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
        seen = visible_tile(i[:, None], j[None, :], asks[:, None], holds[None, :], where, FORM)
        seen = seen & (norm < INFINITY)[:, None]
        weights, change = tl.where(seen, weights, 0.0), tl.where(seen, change, 0.0)
    return weights, change, squashed


@kernel
def store_shares(sums, rows, vectors, at, FORM: tl.constexpr):
    """Store a tile's share of the gradients of the vectors and of the table at an end.

    `sums` are those of the scores' gradients of each query, of keys times these, and of the weights.
    """
    changes, to_held, shares = sums
    queries, upstream = rows
    LONGEST: tl.constexpr = FORM.width if FORM.width > FORM.depth else FORM.depth
    channel, depth = tl.arange(0, FORM.padded_width), tl.arange(0, FORM.padded_depth)
    if vectors.asked is not None:
        to_asked = tl.sum(changes[:, None] * queries.to(tl.float32), 0)
        tl.store(at + channel, to_asked, mask=channel < FORM.width)
    if vectors.held is not None:
        tl.store(at + LONGEST + channel, to_held, mask=channel < FORM.width)
    if vectors.carried is not None:
        to_carried = tl.sum(shares[:, None] * upstream.to(tl.float32), 0)
        tl.store(at + 2 * LONGEST + depth, to_carried, mask=depth < FORM.depth)
    if FORM.biased:
        tl.store(at + 3 * LONGEST, tl.sum(changes, 0))
