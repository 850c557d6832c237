# pyrefly: ignore-errors
"""What the vectors at the ends add for each token: beyond the ends all pairs of a side have the same vectors.

There the score of query i and key j, with the scaled and perhaps capped product s, is

    s(q_i . k_j) + q_i . asked[end] + k_j . held[end] + table[end]

and the gradient of a weight is dO_i . v_j + dO_i . carried[end]. So a tile of such pairs is one of plain attention
with a number for each key, and another log-sum-exp and delta for each query. These numbers are computed once.
"""

from typing import Any, NamedTuple

import triton.language as tl

from ordinate.ops.triton.bands import times_vector
from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.scores import INFINITY, LOG2E, base, load_poison, load_tile


class End(NamedTuple):
    """Numbers for pairs beyond one end, float32, in units of log2 where they are added to scores.

    Args:
        entry: entry of vectors and table at the end.
        keys: poison of each key (`Structure.poison`) plus its product with a vector, (batch, heads, keys). None:
            there is no such vector.
        norm: log-sum-exp of each query less what depends on it alone in its scores, (batch, heads, queries); infinite
            for queries that see nothing or are NaN. None in the forward pass.
        delta: delta of each query less the product of its output's gradient with a vector, likewise.
    """

    entry: Any
    keys: Any
    norm: Any
    delta: Any


class Ends(NamedTuple):
    """Numbers of tokens for tiles between and beyond the ends of the vectors.

    Args:
        between: poison of each key plus its product with the vector of all offsets, (batch, heads, keys). None:
            there is no such vector.
        past: for pairs whose key lies far behind.
        future: for pairs whose key lies far ahead.
    """

    between: Any
    past: End
    future: End


@kernel
def load_shift(numbers, where, owner, token, FORM: tl.constexpr, MASKED: tl.constexpr):
    """Load what is added to the scores of keys of a sequence and query head, the owner; None: their poison alone."""
    batch, head = owner
    if numbers is None:
        shift = load_poison(where, batch, head // FORM.groups, token, MASKED)
    else:
        place = numbers + (batch * where.heads + head).to(tl.int64) * where.keys + token
        shift = tl.load(place, mask=token < where.keys, other=0.0) if MASKED else tl.load(place)
    return shift


@kernel
def query_shift(queries, entry, inputs, FORM: tl.constexpr):
    """What vectors and table at an end add to all scores of each query, in units of log2."""
    SIZE: tl.constexpr = FORM.rows
    bias, vectors, head = inputs
    shift = tl.zeros([SIZE], tl.float32)
    if vectors.asked is not None:
        shift += times_vector(queries, vectors.asked, head, entry, FORM, False) * LOG2E
    if FORM.biased:
        shift += tl.load(bias.table + head.to(tl.int64) * bias.pitch + entry) * LOG2E
    return shift


@kernel
def beyond(queries, upstream, norm, delta, entry, inputs, FORM: tl.constexpr):
    """Log-sum-exp and delta of queries for pairs beyond an end: see `End`."""
    _bias, vectors, head = inputs
    # neither queries that see nothing nor those that are NaN
    seen = (norm < INFINITY) & (norm > -INFINITY)
    norm = tl.where(seen, norm - query_shift(queries, entry, inputs, FORM), INFINITY)
    if vectors.carried is not None:
        delta -= times_vector(upstream, vectors.carried, head, entry, FORM, True)
    return norm, delta


@kernel
def find_key_numbers(k, band, entry, numbers, where, FORM: tl.constexpr):
    """Store poison plus product with the vector of one entry for a tile of keys of a query head."""
    begin = tl.program_id(0) * FORM.rows
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    j = begin + tl.arange(0, FORM.rows)
    poison = load_poison(where, batch, head // FORM.groups, j, True)
    real = (j < where.keys) & (poison == 0.0)
    keys = load_tile(base(k, batch, head // FORM.groups), k.row, begin, real, FORM, FORM.rows, False, True)
    found = poison + times_vector(keys, band, head, entry, FORM, False) * LOG2E
    tl.store(numbers + tl.program_id(1).to(tl.int64) * where.keys + j, found, mask=j < where.keys)


@kernel
def find_query_numbers(q, gradient, softmax, end, inputs, where, FORM: tl.constexpr):
    """Store log-sum-exp and delta for pairs beyond an end, for a tile of queries; `inputs` are bias and vectors."""
    begin = tl.program_id(0) * FORM.rows
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    lse, delta = softmax
    bias, vectors = inputs
    i = begin + tl.arange(0, FORM.rows)
    real = i < where.queries
    place = tl.program_id(1).to(tl.int64) * where.queries + i
    queries = load_tile(base(q, batch, head), q.row, begin, real, FORM, FORM.rows, False, True)
    upstream = load_tile(base(gradient, batch, head), gradient.row, begin, real, FORM, FORM.rows, True, True)
    norm, share = tl.load(lse + place, mask=real, other=INFINITY), tl.load(delta + place, mask=real, other=0.0)
    norm, share = beyond(queries, upstream, norm, share, end.entry, (bias, vectors, head), FORM)
    tl.store(end.norm + place, norm, mask=real)
    tl.store(end.delta + place, share, mask=real)
