# pyrefly: ignore-errors
"""Forward kernel of attention with a vector for each offset (Shaw, Transformer-XL, DeBERTa).

For a pair of offset x, with the scaled and perhaps capped product s(q_i . k_j):

    score(i, j) = s(q_i . k_j) + q_i . asked[x] + k_j . held[x] + table[x]
    out_i = sum over j of weight(i, j) (v_j + carried[x])

Source: Shaw et al. 2018, equations 3 and 4, https://arxiv.org/abs/1803.02155; Dai et al. 2019, section 3.3,
https://arxiv.org/abs/1901.02860; He et al. 2021, equation 4, https://arxiv.org/abs/2006.03654.
"""

import triton.language as tl

from ordinate.ops.triton.bands import add_vectors, key_bands, load_vector, score_pairs
from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.scores import (
    INFINITY,
    LOG2E,
    base,
    load_documents,
    load_tile,
    score_tile,
    store_tile,
    visible_tile,
)
from ordinate.ops.triton.vector_ends import load_shift, query_shift


@kernel
def vector_forward(given, out, lse, bias, vectors, ends, where, FORM: tl.constexpr):
    """Outputs of a tile of queries, and their log-sum-exp in units of log2; `given` are queries, keys and values."""
    HIDDEN: tl.constexpr = FORM.windowed or FORM.documents
    SIZE: tl.constexpr = FORM.rows
    DEPTH: tl.constexpr = FORM.padded_depth
    q, k, v = given
    # the longest rows of a causal mask first
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    i = tile * SIZE + tl.arange(0, SIZE)
    queries = load_tile(base(q, batch, head), q.row, tile * SIZE, i < where.queries, FORM, SIZE, False, True)
    # a query with NaN or infinity becomes NaN: all that it sees is then NaN
    queries += tl.sum(queries.to(tl.float32) * 0.0, 1)[:, None].to(queries.dtype)
    top = tl.full([SIZE], -INFINITY, tl.float32)
    total = tl.zeros([SIZE], tl.float32)
    if FORM.sunk:
        # the sink is the first key
        top = tl.zeros([SIZE], tl.float32) + tl.load(bias.sinks + head) * LOG2E
        total += 1.0
    state = tl.zeros([SIZE, DEPTH], tl.float32), top, total
    asks = load_documents(where.q_document, where, batch, i, where.queries, FORM)
    rows = queries, i, asks
    held, inputs = (k, v, batch), (bias, vectors, where, head)
    low, begin, stop, high = key_bands(tile * SIZE, (batch, head), bias, where, FORM)
    if FORM.far:
        state = add_far_keys(state, rows, held, inputs, (low, begin), ends.past, FORM, HIDDEN)
        if not FORM.causal:
            # the last tile may have fewer keys
            state = add_far_keys(state, rows, held, inputs, (stop, high), ends.future, FORM, True)
    state = add_near_keys(state, rows, held, inputs, (begin, stop), (tile, ends.between), FORM)
    made, top, total = state
    made = made / tl.where(total == 0.0, 1.0, total)[:, None]
    store_tile(base(out, batch, head), out.row, tile * SIZE, where.queries, made, FORM, True)
    place = lse + tl.program_id(1).to(tl.int64) * where.queries + i
    tl.store(place, top + tl.log2(total), mask=i < where.queries)


@kernel
def add_near_keys(state, rows, held, inputs, bounds, place, FORM: tl.constexpr):
    """Add a range of keys to the running sums: weighted values and vectors, highest score and sum of weights.

    `place` are the tile of queries and the numbers of the keys (`Ends.between`).
    """
    SIZE: tl.constexpr = FORM.rows
    queries, i, asks = rows
    k, v, batch = held
    bias, vectors, where, head = inputs
    tile, numbers = place
    key_head = head // FORM.groups
    keys_base, values_base = base(k, batch, key_head), base(v, batch, key_head)
    low, high = bounds
    for step in tl.range(0, tl.cdiv(high - low, SIZE)):
        begin = low + step * SIZE
        entry = begin - tile * SIZE + bias.origin
        j = begin + tl.arange(0, SIZE)
        shift = load_shift(numbers, where, (batch, head), j, FORM, True)
        # a weight of zero would not hide NaN
        real = (j < where.keys) & (shift == shift)
        keys = load_tile(keys_base, k.row, begin, real, FORM, SIZE, False, True)
        score, _ = score_pairs((queries, keys), (i, j), shift, entry, inputs, FORM, False)
        values = load_tile(values_base, v.row, begin, real, FORM, SIZE, True, True)
        holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
        seen = visible_tile(i[:, None], j[None, :], asks[:, None], holds[None, :], where, FORM)
        state, weights = soften(state, tl.where(seen, score, -INFINITY), values, FORM)
        if vectors.carried is not None:
            made, top, total = state
            made = add_vectors(made, weights, (vectors.carried, head, entry, bias.last), FORM, False, True)
            state = made, top, total
    return state


@kernel
def add_far_keys(state, rows, held, inputs, bounds, end, FORM: tl.constexpr, MASKED: tl.constexpr):
    """Add a range of keys beyond an end of the vectors: what they add is the same for all pairs of a query."""
    SIZE: tl.constexpr = FORM.rows
    queries, i, asks = rows
    k, v, batch = held
    bias, vectors, where, head = inputs
    key_head = head // FORM.groups
    keys_base, values_base = base(k, batch, key_head), base(v, batch, key_head)
    low, high = bounds
    of_query = query_shift(queries, end.entry, (bias, vectors, head), FORM)
    if FORM.sunk and vectors.asked is not None:
        # a query that is NaN and sees nothing has the weight of the sink all the same
        of_query = tl.where(tl.sum(queries.to(tl.float32) * 0.0, 1) == 0.0, of_query, 0.0)
    made, before, total = state
    # scores without it, and the weights of these keys alone
    nothing = tl.full([SIZE], -INFINITY, tl.float32)
    state = made, tl.where(before == -INFINITY, nothing, before - of_query), tl.zeros_like(total)
    for step in tl.range(0, tl.cdiv(high - low, SIZE)):
        begin = low + step * SIZE
        j = begin + tl.arange(0, SIZE)
        shift = load_shift(end.keys, where, (batch, head), j, FORM, MASKED)
        real = (j < where.keys) & (shift == shift)
        keys = load_tile(keys_base, k.row, begin, real, FORM, SIZE, False, MASKED)
        products = tl.dot(queries, tl.trans(keys), input_precision=FORM.products)
        given = bias, where, head
        score, _ = score_tile(products, i[:, None], j[None, :], None, given, shift[None, :], FORM, False)
        values = load_tile(values_base, v.row, begin, real, FORM, SIZE, True, MASKED)
        if MASKED:
            holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
            seen = visible_tile(i[:, None], j[None, :], asks[:, None], holds[None, :], where, FORM)
            score = tl.where(seen, score, -INFINITY)
        state, _ = soften(state, score, values, FORM)
    made, top, far = state
    top = tl.where(top == -INFINITY, nothing, top + of_query)
    if vectors.carried is not None:
        made += far[:, None] * load_vector(vectors.carried, head, end.entry, FORM, True)[None, :]
    return made, top, far + total * tl.exp2(before - pivot_of(top))


@kernel
def soften(state, score, values, FORM: tl.constexpr):
    """Add a tile of keys to the running sums of each query; returns the tile's weights, too."""
    made, top, total = state
    higher = tl.maximum(top, tl.max(score, 1))
    pivot = pivot_of(higher)
    weights = tl.exp2(score - pivot[:, None])
    shrunk = tl.exp2(top - pivot)
    total = total * shrunk + tl.sum(weights, 1)
    made = tl.dot(weights.to(values.dtype), values, made * shrunk[:, None], input_precision=FORM.products)
    return (made, higher, total), weights


@kernel
def pivot_of(top):
    """The highest score of each query; 0 for a row without any visible key so far, which has no finite one."""
    return tl.where(top == -INFINITY, 0.0, top)
