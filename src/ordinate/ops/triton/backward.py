# pyrefly: ignore-errors
"""Backward kernels of attention: gradients of keys and values, of queries, and of what a bias is constant in.

With the weights p_ij = exp(s_ij - lse_i), computed again from the forward pass's log-sum-exp, the gradient g_i of the
output, and delta_i = g_i . o_i (see `rows`):

    ds_ij = p_ij (g_i . v_j - delta_i)    dx_ij = scale ds_ij, with a soft cap c times 1 - tanh(scale q_i . k_j / c)^2
    dv_j = sum_i p_ij g_i      dk_j = sum_i dx_ij q_i      dq_i = sum_j dx_ij k_j

The gradient of a number of the bias is the sum of ds_ij over the pairs that have it.

Two kernels, each of which owns what it writes: no atomic additions, the same bits at each call.
"""

import triton.language as tl

from ordinate.ops.triton.curves import curve_change, end_run, load_curve, store_lines
from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.ranges import key_range, one_range, query_range, tile_begin, tile_count
from ordinate.ops.triton.scores import (
    FUTURE,
    INFINITY,
    NEAR,
    PAST,
    base,
    end_of_table,
    load_documents,
    load_finite,
    load_poison,
    load_tile,
    score_tile,
    store_tile,
    tile_place,
    visible_tile,
)


@kernel
def attention_backward_keys(given, softmax, made, added, bias, where, FORM: tl.constexpr):
    """Gradients of a tile of keys and values, over all queries of their group of heads.

    `given` are queries, keys, values and the outputs' gradient; `softmax` the log-sum-exp and delta of each query;
    `made` the gradients of keys and values. `added`, if not None, are gradients that they have from elsewhere, of all
    keys but the last, and how many those are. Tiles are transposed: keys in rows.
    """
    COLUMNS: tl.constexpr = FORM.columns
    WIDTH: tl.constexpr = FORM.padded_width
    DEPTH: tl.constexpr = FORM.padded_depth
    q, k, v, gradient = given
    dk, dv = made
    tile = tl.program_id(0)
    batch, key_head = tl.program_id(1) // where.key_heads, tl.program_id(1) % where.key_heads
    j = tile * COLUMNS + tl.arange(0, COLUMNS)
    poison = load_poison(where, batch, key_head, j, True)
    # NaN of a key stays in its own row
    keys = load_tile(base(k, batch, key_head), k.row, tile * COLUMNS, j < where.keys, FORM, COLUMNS, False, True)
    values = load_tile(base(v, batch, key_head), v.row, tile * COLUMNS, j < where.keys, FORM, COLUMNS, True, True)
    holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
    rows = keys, values, j, holds, poison, tile * COLUMNS
    to_keys = tl.zeros([COLUMNS, WIDTH], tl.float32)
    to_values = tl.zeros([COLUMNS, DEPTH], tl.float32)
    held = q, gradient, softmax
    state = add_query_ranges((to_keys, to_values), rows, held, (bias, where, batch, key_head), tile, FORM)
    to_keys, to_values = state
    to_keys *= where.scale
    if added is not None:
        more_keys, more_values, less = added
        real, begin = j < where.keys - less, tile * COLUMNS
        more = load_tile(base(more_keys, batch, key_head), more_keys.row, begin, real, FORM, COLUMNS, False, True)
        to_keys += more.to(tl.float32)
        more = load_tile(base(more_values, batch, key_head), more_values.row, begin, real, FORM, COLUMNS, True, True)
        to_values += more.to(tl.float32)
    store_tile(base(dk, batch, key_head), dk.row, tile * COLUMNS, where.keys, to_keys, FORM, False)
    store_tile(base(dv, batch, key_head), dv.row, tile * COLUMNS, where.keys, to_values, FORM, True)


@kernel
def add_query_ranges(state, rows, held, inputs, tile, FORM: tl.constexpr):
    """Add all queries of a group of heads to the gradients of a tile of keys and values."""
    bias, where, batch, key_head = inputs
    bounds = query_range(tile * FORM.columns, (batch, key_head), bias, where, FORM)
    _low, first, second, third, end, _high = bounds
    if not FORM.documents:
        if FORM.far:
            state = add_queries(state, rows, held, inputs, one_range(third, end), FORM, PAST, False)
            if not FORM.causal:
                state = add_queries(state, rows, held, inputs, one_range(first, second), FORM, FUTURE, False)
        else:
            state = add_queries(state, rows, held, inputs, one_range(first, end), FORM, NEAR, False)
    return add_queries(state, rows, held, inputs, bounds, FORM, NEAR, True)


@kernel
def add_queries(state, rows, held, inputs, bounds, FORM: tl.constexpr, SIDE: tl.constexpr, MASKED: tl.constexpr):
    """Add a range of queries of all heads of a group to the gradients of a tile of keys and values."""
    ROWS: tl.constexpr = FORM.rows
    BIASED: tl.constexpr = FORM.biased and SIDE == NEAR
    to_keys, to_values = state
    keys, values, j, holds, poison, first = rows
    q, gradient, softmax = held
    bias, where, batch, key_head = inputs
    tiles = tile_count(bounds, ROWS)
    # one loop over heads and tiles: around an inner loop, what it does not change would fill the registers
    for step in tl.range(0, FORM.groups * tiles):
        head, tile = key_head, step
        if FORM.groups > 1:
            head, tile = key_head * FORM.groups + step // tiles, step % tiles
        begin = tile_begin(tile, bounds, ROWS)
        i = begin + tl.arange(0, ROWS)
        norm, delta = load_softmax(softmax, batch, i, where, head, MASKED)
        # queries that see nothing, or NaN: a weight of zero would not hide them
        real = norm < INFINITY
        queries = load_finite(base(q, batch, head), q.row, begin, real, FORM, ROWS, MASKED)
        products = tl.dot(keys, tl.trans(queries), input_precision=FORM.products)
        shift = poison + end_of_table(bias, head, FORM, SIDE)
        given = bias, where, head
        curve = load_curve(bias, batch, head, i, where, FORM)
        place = tile_place(begin, first, curve, bias, where, FORM)
        score, squashed = score_tile(products, i[None, :], j[:, None], place, given, shift[:, None], FORM, BIASED)
        weights = tl.exp2(score - norm[None, :])
        upstream = load_tile(base(gradient, batch, head), gradient.row, begin, real, FORM, ROWS, True, MASKED)
        if MASKED:
            asks = load_documents(where.q_document, where, batch, i, where.queries, FORM)
            seen = visible_tile(i[None, :], j[:, None], asks[None, :], holds[:, None], where, FORM)
            weights = tl.where(seen, weights, 0.0)
        to_values = tl.dot(weights.to(upstream.dtype), upstream, to_values, input_precision=FORM.products)
        slope = tl.dot(values, tl.trans(upstream), input_precision=FORM.products)
        change = weights * (slope - delta[None, :])
        if FORM.capped:
            change *= 1.0 - squashed * squashed
        if MASKED:
            change = tl.where(seen, change, 0.0)
        to_keys = tl.dot(change.to(queries.dtype), queries, to_keys, input_precision=FORM.products)
    return to_keys, to_values


@kernel
def load_softmax(softmax, batch, i, where, head, MASKED: tl.constexpr):
    """Log-sum-exp of queries, infinite where they see nothing so that their weights are 0, and their delta."""
    lse, delta = softmax
    place = (batch * where.heads + head).to(tl.int64) * where.queries + i
    if MASKED:
        norm = tl.load(lse + place, mask=i < where.queries, other=INFINITY)
        shares = tl.load(delta + place, mask=i < where.queries, other=0.0)
    else:
        norm, shares = tl.load(lse + place), tl.load(delta + place)
    return tl.where(norm == -INFINITY, INFINITY, norm), shares


@kernel
def attention_backward_queries(given, softmax, made, added, bias, where, FORM: tl.constexpr):
    """Gradients of a tile of queries, and its share of the gradients of the bias.

    `made` are the gradients of the queries; sums by sequence, head and tile, for slopes or the ends of the table two,
    of what lies behind and ahead, for a curve those of `store_lines`; and the gradients of a curve's shares. `added`,
    if not None, are gradients that queries have from elsewhere, of all but the first, and how many those are.
    """
    ROWS: tl.constexpr = FORM.rows
    WIDTH: tl.constexpr = FORM.padded_width
    PIECES: tl.constexpr = FORM.pieces if FORM.pieces > 0 else 1
    q, k, v, gradient = given
    dq, sums, of_shares = made
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    i = tile * ROWS + tl.arange(0, ROWS)
    queries = load_tile(base(q, batch, head), q.row, tile * ROWS, i < where.queries, FORM, ROWS, False, True)
    upstream = load_tile(
        base(gradient, batch, head), gradient.row, tile * ROWS, i < where.queries, FORM, ROWS, True, True
    )
    norm, delta = load_softmax(softmax, batch, i, where, head, True)
    asks = load_documents(where.q_document, where, batch, i, where.queries, FORM)
    rows = queries, upstream, i, asks, norm, delta, tile * ROWS, load_curve(bias, batch, head, i, where, FORM)
    of_rows, of_pieces = tl.zeros([ROWS], tl.float32), tl.zeros([PIECES], tl.float32)
    state = tl.zeros([ROWS, WIDTH], tl.float32), of_rows, of_rows, of_pieces, of_pieces, of_rows, of_rows, 0
    # named, since Triton 3.6 loses numbers that are 1 in a tuple of tuples within a loop
    inputs = bias, where, head
    state = add_key_ranges(state, rows, (k, v, batch), inputs, tile, FORM)
    to_queries, behind, ahead, levels, slopes, own, along, piece = state
    to_queries *= where.scale
    if added is not None:
        more_queries, less = added
        real = (i >= less) & (i < where.queries)
        start = base(more_queries, batch, head)
        more = load_tile(start, more_queries.row, tile * ROWS - less, real, FORM, ROWS, False, True)
        to_queries += more.to(tl.float32)
    store_tile(base(dq, batch, head), dq.row, tile * ROWS, where.queries, to_queries, FORM, False)
    share = tl.program_id(1) * tl.num_programs(0) + tile
    if FORM.learned and FORM.pieces > 0:
        place = tl.program_id(1).to(tl.int64) * where.queries + i
        tl.store(of_shares + place, behind, mask=i < where.queries)
        ahead *= load_curve(bias, batch, head, i, where, FORM)[0]
        levels, slopes = end_run(levels, slopes, (own, along, piece), FORM)
        store_lines(sums + (1 + 2 * FORM.pieces) * share, ahead, levels, slopes, FORM)
    elif FORM.learned:
        tl.store(sums + 2 * share, tl.sum(behind, 0))
        tl.store(sums + 2 * share + 1, tl.sum(ahead, 0))


@kernel
def add_key_ranges(state, rows, held, inputs, tile, FORM: tl.constexpr):
    """Add all keys to the gradients of a tile of queries."""
    bias, where, head = inputs
    bounds = key_range(tile * FORM.rows, (held[2], head), bias, where, FORM)
    _low, first, second, third, end, _high = bounds
    if not FORM.documents:
        state = add_scores(state, rows, held, inputs, one_range(first, second), FORM, PAST, False)
    if FORM.far and not FORM.causal and not FORM.documents:
        state = add_scores(state, rows, held, inputs, one_range(third, end), FORM, FUTURE, False)
    return add_scores(state, rows, held, inputs, bounds, FORM, NEAR, True)


@kernel
def add_scores(state, rows, held, inputs, bounds, FORM: tl.constexpr, SIDE: tl.constexpr, MASKED: tl.constexpr):
    """Add a range of keys to the gradients of a tile of queries."""
    COLUMNS: tl.constexpr = FORM.columns
    BIASED: tl.constexpr = FORM.biased and (SIDE == NEAR or not FORM.far)
    to_queries, behind, ahead, levels, slopes, own, along, piece = state
    queries, upstream, i, asks, norm, delta, first, curve = rows
    k, v, batch = held
    bias, where, head = inputs
    constant, key_head = end_of_table(bias, head, FORM, SIDE), head // FORM.groups
    keys_base, values_base = base(k, batch, key_head), base(v, batch, key_head)
    for step in tl.range(0, tile_count(bounds, COLUMNS)):
        begin = tile_begin(step, bounds, COLUMNS)
        j = begin + tl.arange(0, COLUMNS)
        poison = load_poison(where, batch, key_head, j, MASKED)
        real = (j < where.keys) & (poison == 0.0)
        keys = load_tile(keys_base, k.row, begin, real, FORM, COLUMNS, False, MASKED)
        values = load_tile(values_base, v.row, begin, real, FORM, COLUMNS, True, MASKED)
        products = tl.dot(queries, tl.trans(keys), input_precision=FORM.products)
        shift = (poison + constant)[None, :]
        place = tile_place(first, begin, curve, bias, where, FORM)
        score, squashed = score_tile(products, i[:, None], j[None, :], place, inputs, shift, FORM, BIASED)
        slope = tl.dot(upstream, tl.trans(values), input_precision=FORM.products)
        change = tl.exp2(score - norm[:, None]) * (slope - delta[:, None])
        if MASKED:
            holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
            seen = visible_tile(i[:, None], j[None, :], asks[:, None], holds[None, :], where, FORM)
            change = tl.where(seen, change, 0.0)
        if FORM.learned and FORM.pieces > 0:
            sums = behind, ahead, levels, slopes, own, along, piece
            sums = curve_change(change, i[:, None], j[None, :], place, inputs, sums, FORM)
            behind, ahead, levels, slopes, own, along, piece = sums
        elif FORM.learned:
            one, other = bias_change(change, i[:, None], j[None, :], inputs, BIASED, SIDE)
            behind += one
            ahead += other
        if FORM.capped:
            change *= 1.0 - squashed * squashed
            if MASKED:
                change = tl.where(seen, change, 0.0)
        to_queries = tl.dot(change.to(keys.dtype), keys, to_queries, input_precision=FORM.products)
    return to_queries, behind, ahead, levels, slopes, own, along, piece


@kernel
def bias_change(change, i, j, inputs, BIASED: tl.constexpr, SIDE: tl.constexpr):
    """Sums of each row for the two slopes, or for the two ends of the table."""
    bias, where, _head = inputs
    if bias.slopes is not None:
        distance = (i + where.start).to(tl.float32) - j.to(tl.float32)
        one = tl.sum(change * tl.minimum(-distance, 0.0), 1)
        other = tl.sum(change * tl.minimum(distance, 0.0), 1)
    elif BIASED:
        entry = j - i + bias.origin
        one = tl.sum(tl.where(entry <= 0, change, 0.0), 1)
        other = tl.sum(tl.where(entry >= bias.last, change, 0.0), 1)
    else:
        all_of_it = tl.sum(change, 1)
        none_of_it = tl.zeros_like(all_of_it)
        one = all_of_it if SIDE == PAST else none_of_it
        other = none_of_it if SIDE == PAST else all_of_it
    return one, other
