# pyrefly: ignore-errors
"""Kernel of the gradients of queries, keys, decays and bonus of linear attention with decay, in a chunk.

The recurrence is S_t = exp(w_t) S_(t-1) + k_t v_t^T with the output y_t = S_t^T q_t, w_t being log decays of the
channels of keys. With the gradient g_t of y_t, and the gradient A_t of the state S_t by all that follows,

    A_t = q_t g_t^T + exp(w_(t+1)) A_(t+1)
    dq_t = S_t g_t      dk_t = A_t v_t      dw_t = exp(w_t) rowsum(S_(t-1) * A_t)

Where the state is read before its token (RWKV), y_t = S_(t-1)^T q_t + (q_t . (u * k_t)) v_t with the bonus u. With
b_t = g_t . v_t

    A_t = q_(t+1) g_(t+1)^T + exp(w_(t+1)) A_(t+1)
    dq_t = S_(t-1) g_t + b_t u * k_t      dk_t = A_t v_t + b_t u * q_t      du = sum_t b_t q_t * k_t

Gradients of log decays are sums of products over all that a decay lies between, in float32; none is a difference of
two others, which would leave rounding errors where a strong decay makes the gradient vanish.
"""

import triton.language as tl

from ordinate.ops.triton.chunk_decays import (
    entering,
    is_late,
    leaving,
    level_decays,
    level_pairs,
    level_partners,
    load_logs,
    load_rows,
    ones,
    pair_decays,
    store_rows,
    summed,
)
from ordinate.ops.triton.kernel import kernel


@kernel
def chunk_gradients(given, w, bonus, states, made, sizes, FORM: tl.constexpr):
    """Store the gradients of queries, keys and log decays of a chunk, and its share of that of the bonus.

    A program has one chunk of one head and a block of the keys' channels. Decays that all channels share have a
    gradient for each block.

    Args:
        given: queries, keys, values, gradient of the output.
        w: log decays.
        bonus: of each head and channel; read before the update only.
        states: before each chunk, and the gradients of those after each.
        made: gradients of queries, keys and log decays, and of the bonus (batch * heads, chunks, width).
        sizes: as in `scan_states`.
        FORM: constants.
    """
    CHUNK: tl.constexpr = FORM.chunk
    q, k, _values, _gradient = given
    dq, dk, dw, dbonus = made
    heads, groups, tokens, chunks = sizes
    row, chunk = tl.program_id(0) // chunks, tl.program_id(0) % chunks
    batch, head = row // heads, row % heads
    t = tl.arange(0, CHUNK)
    i = chunk * CHUNK + t
    j = tl.program_id(1) * FORM.rows + tl.arange(0, FORM.rows)
    slopes, asked, stored, kept = read_gradients(given, states, (row, chunk, batch, head), (i, j), tokens, FORM)
    asks = load_rows(q, batch, head // groups, i, j, tokens, FORM.width)
    keys = load_rows(k, batch, head // groups, i, j, tokens, FORM.width)
    logs = load_logs(w, batch, head, i, j, tokens, FORM)
    asked *= tl.exp(entering(logs, FORM))
    stored *= tl.exp(leaving(logs, FORM))
    kept = kept[None, :] * tl.exp(tl.sum(logs, 0))[None, :]
    if FORM.shared:
        found = shared_gradients(asks, keys, logs, slopes, asked, stored, kept, FORM)
        store_rows(dw, row, tl.program_id(1), i, tl.arange(0, 1), tokens, 1, found[2])
    else:
        found = channel_gradients(asks, keys, logs, slopes, asked, stored, kept, FORM)
        own = tl.sum(tl.where(t[:, None] == t[None, :], slopes, 0.0), 1)[:, None]
        if FORM.before:
            place = row.to(tl.int64) * chunks + chunk
            shares = tl.sum(own * asks * keys, 0)
            tl.store(dbonus + place * FORM.width + j, shares, mask=j < FORM.width)
            own = own * tl.load(bonus + head * FORM.width + j, mask=j < FORM.width, other=0.0)[None, :]
        found = found[0] + own * keys, found[1] + own * asks, found[2]
        store_rows(dw, batch, head, i, j, tokens, FORM.width, found[2])
    store_rows(dq, batch, head, i, j, tokens, FORM.width, found[0])
    store_rows(dk, batch, head, i, j, tokens, FORM.width, found[1])


@kernel
def read_gradients(given, states, where, places, tokens, FORM: tl.constexpr):
    """Gradients of pair products, dY V^T; of decayed queries, dY S^T; of keys, V D^T; and of decays, sum of S D."""
    CHUNK: tl.constexpr = FORM.chunk
    ROWS: tl.constexpr = FORM.rows
    _q, _k, v, gradient = given
    before, after = states
    row, chunk, batch, head = where
    i, j = places
    slopes = tl.zeros((CHUNK, CHUNK), tl.float32)
    asked, stored = tl.zeros((CHUNK, ROWS), tl.float32), tl.zeros((CHUNK, ROWS), tl.float32)
    kept = tl.zeros((ROWS,), tl.float32)
    for begin in range(0, FORM.depth, FORM.columns):
        e = begin + tl.arange(0, FORM.columns)
        values = load_rows(v, batch, head, i, e, tokens, FORM.depth)
        above = load_rows(gradient, batch, head, i, e, tokens, FORM.depth)
        slopes = tl.dot(above, tl.trans(values), slopes, input_precision="ieee")
        state = load_rows(before, row, chunk, j, e, FORM.width, FORM.depth)
        asked = tl.dot(above, tl.trans(state), asked, input_precision="ieee")
        later = load_rows(after, row, chunk, j, e, FORM.width, FORM.depth)
        stored = tl.dot(values, tl.trans(later), stored, input_precision="ieee")
        kept += tl.sum(state * later, 1)
    return slopes, asked, stored, kept


@kernel
def channel_gradients(asks, keys, logs, slopes, asked, stored, kept, FORM: tl.constexpr):
    """Gradients where each channel has a decay: from whole chunks down to pairs of neighbours."""
    # of the sums of log decays from the begin of a token's range to its reading, and from it to the end of its range
    entered, left = asks * asked, keys * stored
    decays = kept + tl.zeros_like(logs)
    for step in range(0, FORM.levels):
        level = FORM.levels - 1 - step
        late, pairs = is_late(level, FORM), level_pairs(level, FORM)
        # a longer range also has the other half
        crossing = tl.where(late, entered, left)
        decays = tl.dot(level_partners(level, FORM), crossing, decays, input_precision="ieee")
        fade = level_decays(logs, level, FORM)
        mixed = tl.where(late, asks, keys) * fade
        own = tl.where(pairs, slopes, 0.0)
        above = tl.dot(own + tl.trans(own), mixed, input_precision="ieee")
        asked += tl.where(late, above * fade, 0.0)
        stored += tl.where(late, 0.0, above * fade)
        entered += tl.where(late, above * mixed, 0.0)
        left += tl.where(late, 0.0, above * mixed)
    if not FORM.before:
        decays += entered
    return asked, stored, decays


@kernel
def shared_gradients(asks, keys, logs, slopes, asked, stored, kept, FORM: tl.constexpr):
    """Gradients where all channels of a head share the decay; that of the decay from these channels alone."""
    CHUNK: tl.constexpr = FORM.chunk
    t, s = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    entered, left = tl.sum(asks * asked, 1)[:, None], tl.sum(keys * stored, 1)[:, None]
    slopes *= pair_decays(logs, FORM)
    # those of pairs, summed over the keys before a token, then over the queries from it on
    pairs = slopes * tl.dot(asks, tl.trans(keys), input_precision="ieee")
    below = tl.dot(pairs, ones(t < s), input_precision="ieee")
    decays = tl.sum(tl.where(t >= s, below, 0.0), 0)[:, None] + tl.sum(kept, 1)[:, None]
    decays += summed(ones(s >= t), entered, FORM) + summed(ones(s < t), left, FORM)
    asked = tl.dot(slopes, keys, asked, input_precision="ieee")
    stored = tl.dot(tl.trans(slopes), asks, stored, input_precision="ieee")
    return asked, stored, decays
