# pyrefly: ignore-errors
"""Forward kernel of attention: softmax over tiles of keys, by running sums, for a tile of queries.

    s_ij = cap(scale q_i . k_j) + bias_ij
    lse_i = log(exp(sink) + sum_j exp(s_ij))      o_i = sum_j exp(s_ij - lse_i) v_j

over the visible keys j; cap(x) = c tanh(x / c), the sink and the bias where there are any. Scores are multiplied by
log2(e), and the log-sum-exp is stored in units of log2.
"""

import triton.language as tl

from ordinate.ops.triton.curves import load_curve
from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.ranges import key_range, one_range, tile_begin, tile_count
from ordinate.ops.triton.scores import (
    FUTURE,
    INFINITY,
    LOG2E,
    NEAR,
    PAST,
    base,
    end_of_table,
    load_documents,
    load_poison,
    load_tile,
    score_tile,
    store_tile,
    tile_place,
    visible_tile,
)


@kernel
def attention_forward(given, out, lse, bias, where, FORM: tl.constexpr):
    """Outputs of a tile of queries, and their log-sum-exp in units of log2; `given` are queries, keys and values."""
    ROWS: tl.constexpr = FORM.rows
    DEPTH: tl.constexpr = FORM.padded_depth
    q, k, v = given
    # the longest rows of a causal mask first
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    i = tile * ROWS + tl.arange(0, ROWS)
    queries = load_tile(base(q, batch, head), q.row, tile * ROWS, i < where.queries, FORM, ROWS, False, True)
    # a query with NaN or infinity becomes NaN: all that it sees is then NaN
    queries += tl.sum(queries.to(tl.float32) * 0.0, 1)[:, None].to(queries.dtype)
    top = tl.full([ROWS], -INFINITY, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    if FORM.sunk:
        # the sink is the first key
        top = tl.zeros([ROWS], tl.float32) + tl.load(bias.sinks + head) * LOG2E
        total += 1.0
    state = tl.zeros([ROWS, DEPTH], tl.float32), top, total
    asks = load_documents(where.q_document, where, batch, i, where.queries, FORM)
    rows = queries, i, asks, tile * ROWS, load_curve(bias, batch, head, i, where, FORM)
    inputs = bias, where, head
    bounds = key_range(tile * ROWS, (batch, head), bias, where, FORM)
    _low, first, second, third, end, _high = bounds
    if not FORM.documents:
        state = add_keys(state, rows, (k, v, batch), inputs, one_range(first, second), FORM, PAST, False)
    if FORM.far and not FORM.causal and not FORM.documents:
        state = add_keys(state, rows, (k, v, batch), inputs, one_range(third, end), FORM, FUTURE, False)
    state = add_keys(state, rows, (k, v, batch), inputs, bounds, FORM, NEAR, True)
    made, top, total = state
    made = made / tl.where(total == 0.0, 1.0, total)[:, None]
    store_tile(base(out, batch, head), out.row, tile * ROWS, where.queries, made, FORM, True)
    place = lse + tl.program_id(1).to(tl.int64) * where.queries + i
    tl.store(place, top + tl.log2(total), mask=i < where.queries)


@kernel
def add_keys(state, rows, held, inputs, bounds, FORM: tl.constexpr, SIDE: tl.constexpr, MASKED: tl.constexpr):
    """Add a range of keys to the running sums: weighted values, highest score and sum of weights of each query."""
    COLUMNS: tl.constexpr = FORM.columns
    BIASED: tl.constexpr = FORM.biased and (SIDE == NEAR or not FORM.far)
    made, top, total = state
    queries, i, asks, first, curve = rows
    k, v, batch = held
    bias, where, head = inputs
    constant = end_of_table(bias, head, FORM, SIDE)
    key_head = head // FORM.groups
    keys_base, values_base = base(k, batch, key_head), base(v, batch, key_head)
    for step in tl.range(0, tile_count(bounds, COLUMNS)):
        begin = tile_begin(step, bounds, COLUMNS)
        place = tile_place(first, begin, curve, bias, where, FORM)
        j = begin + tl.arange(0, COLUMNS)
        poison = load_poison(where, batch, key_head, j, MASKED)
        # a weight of zero would not hide NaN
        real = (j < where.keys) & (poison == 0.0)
        keys = load_tile(keys_base, k.row, begin, real, FORM, COLUMNS, False, MASKED)
        products = tl.dot(queries, tl.trans(keys), input_precision=FORM.products)
        shift = (poison + constant)[None, :]
        score, _ = score_tile(products, i[:, None], j[None, :], place, inputs, shift, FORM, BIASED)
        values = load_tile(values_base, v.row, begin, real, FORM, COLUMNS, True, MASKED)
        if MASKED:
            holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
            seen = visible_tile(i[:, None], j[None, :], asks[:, None], holds[None, :], where, FORM)
            score = tl.where(seen, score, -INFINITY)
        higher = tl.maximum(top, tl.max(score, 1))
        # a row without any visible key so far has no finite pivot
        pivot = tl.where(higher == -INFINITY, 0.0, higher)
        weights = tl.exp2(score - pivot[:, None])
        shrunk = tl.exp2(top - pivot)
        total = total * shrunk + tl.sum(weights, 1)
        made = tl.dot(weights.to(values.dtype), values, made * shrunk[:, None], input_precision=FORM.products)
        top = higher
    return made, top, total
