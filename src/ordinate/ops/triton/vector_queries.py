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
from ordinate.ops.triton.scores import base, store_tile
from ordinate.ops.triton.vector_backward import load_keys, load_queries, pair_gradients

# vectors of a program's share: for each of two ends those of queries, keys and values, and the sum for the table; and
# the one of all offsets
SHARES = tl.constexpr(9)


@kernel
def vector_backward_queries(given, softmax, made, bias, vectors, where, FORM: tl.constexpr):
    """Gradients of a tile of queries, and its shares of the gradients of vectors that many pairs have.

    `made` are the gradients of the queries, and the shares by sequence, head and tile, of which only those are
    written that there are. FORM.learned says whether they are wanted.
    """
    SIZE: tl.constexpr = FORM.rows
    WIDTH: tl.constexpr = FORM.padded_width
    q, k, v, gradient = given
    dq, shares = made
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    LONGEST: tl.constexpr = FORM.width if FORM.width > FORM.depth else FORM.depth
    at = shares + (tl.program_id(1) * tl.num_programs(0) + tile).to(tl.int64) * (SHARES * LONGEST)
    rows = load_queries(q, gradient, softmax, batch, head, tile * SIZE, where, FORM)
    # of products, of the terms that the scale does not multiply, and of a vector of all offsets
    state = (
        tl.zeros([SIZE, WIDTH], tl.float32),
        tl.zeros([SIZE, WIDTH], tl.float32),
        tl.zeros([WIDTH], tl.float32),
    )
    held, inputs = (k, v, batch), (bias, vectors, where, head)
    low, begin, stop, high = key_bands(tile * SIZE, (batch, head), bias, where, FORM)
    if FORM.far:
        state = add_far_scores(state, rows, held, inputs, (low, begin), (tile, 0, at), FORM)
        if not FORM.causal:
            ends = tile, bias.last, at + 4 * LONGEST
            state = add_far_scores(state, rows, held, inputs, (stop, high), ends, FORM)
    to_queries, beside, lone, _shared = add_vector_scores(
        state, rows, held, inputs, (begin, stop), (tile, 0), FORM, False
    )
    to_queries = to_queries * where.scale + beside
    store_tile(base(dq, batch, head), dq.row, tile * SIZE, where.queries, to_queries, FORM, False)
    if FORM.learned and vectors.lone is not None:
        channel = tl.arange(0, WIDTH)
        tl.store(at + 8 * LONGEST + channel, lone, mask=channel < FORM.width)


@kernel
def add_vector_scores(state, rows, held, inputs, bounds, places, FORM: tl.constexpr, FAR: tl.constexpr):
    """Add a range of keys to the gradients of a tile of queries.

    `places` are the tile of queries, and if FAR the entry that all pairs have, whose vectors are not added yet: the
    sums of the scores' gradients of each query, of keys times these, and of the weights are returned too.
    """
    SIZE: tl.constexpr = FORM.rows
    WIDTH: tl.constexpr = FORM.padded_width
    to_queries, beside, lone = state
    queries, upstream, about = rows
    k, v, batch = held
    bias, vectors, where, head = inputs
    tile, end = places
    low, high = bounds
    changes = tl.zeros([SIZE], tl.float32)
    shares = tl.zeros([SIZE], tl.float32)
    to_held = tl.zeros([WIDTH], tl.float32)
    for step in tl.range(0, tl.cdiv(high - low, SIZE)):
        begin = low + step * SIZE
        place = end if FAR else begin - tile * SIZE + bias.origin
        keys, values, columns = load_keys(k, v, batch, head // FORM.groups, begin, where, FORM)
        tokens = queries, keys, upstream, values
        weights, change, inner = pair_gradients(tokens, about, columns, place, inputs, FORM, False, FAR)
        to_queries = tl.dot(inner.to(keys.dtype), keys, to_queries, input_precision="ieee")
        if FAR:
            changes += tl.sum(change, 1)
            if vectors.held is not None and FORM.learned:
                to_held += tl.sum(tl.sum(change, 0)[:, None] * keys.to(tl.float32), 0)
            if vectors.carried is not None and FORM.learned:
                shares += tl.sum(weights, 1)
        elif vectors.asked is not None:
            entries = vectors.asked, head, place, bias.last
            beside = add_vectors(beside, change, entries, FORM, False, False, False)
        if FORM.learned and vectors.lone is not None:
            lone += tl.sum(tl.sum(change, 0)[:, None] * keys.to(tl.float32), 0)
    return to_queries, beside, lone, (changes, to_held, shares)


@kernel
def add_far_scores(state, rows, held, inputs, bounds, places, FORM: tl.constexpr):
    """Add keys beyond one end of the vectors, and store their share of the gradients there.

    `places` are the tile of queries, the entry of the end, and the address of the share.
    """
    queries, upstream, _about = rows
    _bias, vectors, _where, head = inputs
    tile, end, at = places
    made = add_vector_scores(state, rows, held, inputs, bounds, (tile, end), FORM, True)
    to_queries, beside, lone, sums = made
    changes, to_held, shares = sums
    if vectors.asked is not None:
        beside += changes[:, None] * load_vector(vectors.asked, head, end, FORM, False)[None, :]
    if FORM.learned:
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
    return to_queries, beside, lone
