# pyrefly: ignore-errors
"""Forward kernel of attention with a vector for each offset (Shaw, Transformer-XL, DeBERTa).

For a pair of offset x, with the scaled and perhaps capped product s(q_i . k_j):

    score(i, j) = s(q_i . k_j) + q_i . asked[x] + k_j . held[x] + table[x]
    out_i = sum over j of weight(i, j) (v_j + carried[x])

Source: Shaw et al. 2018, equations 3 and 4, https://arxiv.org/abs/1803.02155; Dai et al. 2019, section 3.3,
https://arxiv.org/abs/1901.02860; He et al. 2021, equation 4, https://arxiv.org/abs/2006.03654.
"""

import triton.language as tl

from ordinate.ops.triton.bands import add_vectors, key_bands, score_pairs
from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.scores import (
    INFINITY,
    LOG2E,
    base,
    load_documents,
    load_poison,
    load_tile,
    store_tile,
    visible_tile,
)


@kernel
def vector_forward(given, out, lse, bias, vectors, where, FORM: tl.constexpr):
    """Outputs of a tile of queries, and their log-sum-exp in units of log2; `given` are queries, keys and values."""
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
        state = add_vector_keys(state, rows, held, inputs, (low, begin), (tile, 0), FORM, True)
        if not FORM.causal:
            state = add_vector_keys(state, rows, held, inputs, (stop, high), (tile, bias.last), FORM, True)
    state = add_vector_keys(state, rows, held, inputs, (begin, stop), (tile, 0), FORM, False)
    made, top, total = state
    made = made / tl.where(total == 0.0, 1.0, total)[:, None]
    store_tile(base(out, batch, head), out.row, tile * SIZE, where.queries, made, FORM, True)
    place = lse + tl.program_id(1).to(tl.int64) * where.queries + i
    tl.store(place, top + tl.log2(total), mask=i < where.queries)


@kernel
def add_vector_keys(state, rows, held, inputs, bounds, places, FORM: tl.constexpr, FAR: tl.constexpr):
    """Add a range of keys to the running sums: weighted values and vectors, highest score and sum of weights.

    `places` are the tile of queries, and if FAR the entry that all pairs have.
    """
    SIZE: tl.constexpr = FORM.rows
    made, top, total = state
    queries, i, asks = rows
    k, v, batch = held
    bias, vectors, where, head = inputs
    tile, end = places
    key_head = head // FORM.groups
    keys_base, values_base = base(k, batch, key_head), base(v, batch, key_head)
    low, high = bounds
    for step in tl.range(0, tl.cdiv(high - low, SIZE)):
        begin = low + step * SIZE
        place = end if FAR else begin - tile * SIZE + bias.origin
        j = begin + tl.arange(0, SIZE)
        poison = load_poison(where, batch, key_head, j, True)
        # a weight of zero would not hide NaN
        real = (j < where.keys) & (poison == 0.0)
        keys = load_tile(keys_base, k.row, begin, real, FORM, SIZE, False, True)
        score, _ = score_pairs((queries, keys), (i, j), poison, place, inputs, FORM, False, FAR)
        values = load_tile(values_base, v.row, begin, real, FORM, SIZE, True, True)
        holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
        seen = visible_tile(i[:, None], j[None, :], asks[:, None], holds[None, :], where, FORM)
        score = tl.where(seen, score, -INFINITY)
        higher = tl.maximum(top, tl.max(score, 1))
        # a row without any visible key so far has no finite pivot
        pivot = tl.where(higher == -INFINITY, 0.0, higher)
        weights = tl.exp2(score - pivot[:, None])
        shrunk = tl.exp2(top - pivot)
        total = total * shrunk + tl.sum(weights, 1)
        made = tl.dot(weights.to(values.dtype), values, made * shrunk[:, None], input_precision="ieee")
        if vectors.carried is not None:
            entries = vectors.carried, head, place, bias.last
            made = add_vectors(made, weights, entries, FORM, False, True, FAR)
        top = higher
    return made, top, total
