# pyrefly: ignore-errors
"""Products of queries and keys with a vector for each offset, tile by tile, and their transposes.

A tile has as many queries as keys, B. The offset of its key c and its query r is that of its first pair plus c - r,
so a tile needs the vectors of 2 B offsets, a band: the lower half has those of c < r, the upper half those of
c >= r. The product of the queries with a half of the band has in column x of row r what belongs to the key

    c = (r + x) mod B,   of the upper half if r + x < B, of the lower half otherwise.

So a pair has column c - r + B of row r of both products side by side. These are skewed
(`ordinate.ops.triton.skewing`): nothing of the size of queries x offsets is held. Where the vectors are multiplied
with keys, column x of row c belongs to the query r = (c - x) mod B, of the upper half if x <= c. Tiles that have keys
in rows have all of this transposed.
Source: the relative shift of Dai et al. 2019, Transformer-XL, appendix B, https://arxiv.org/abs/1901.02860, and the
skewing of Huang et al. 2018, Music Transformer, section 3.4, https://arxiv.org/abs/1809.04281, in tiles.
"""

from typing import Any, NamedTuple

import triton.language as tl

from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.ranges import key_range, query_range, round_down, round_up
from ordinate.ops.triton.scores import LOG2E, score_tile
from ordinate.ops.triton.skewing import skewed


class Band(NamedTuple):
    """Vectors by memory offset (heads or 1, entries, channels); offsets beyond their ends have those at the ends.

    Args:
        data: the tensor, contiguous, in a kernel its address.
        head: stride of the heads; 0 if they share the vectors.
    """

    data: Any
    head: Any


class Vectors(NamedTuple):
    """Vectors of one call, each a `Band` or None.

    Args:
        asked: multiplied with queries, in their dtype.
        held: multiplied with keys, in their dtype.
        carried: added to values, in their dtype.
        lone: one vector for all offsets, multiplied with keys, float32.
    """

    asked: Any
    held: Any
    carried: Any
    lone: Any


@kernel
def band_bounds(limits, constant, FORM: tl.constexpr):
    """Bounds of three ranges of tiles: beyond one end of the vectors, between the ends, beyond the other end.

    `limits` are the bounds of what may be visible. Tiles before the first of `constant` and from the second on have
    the entries of one end only. Where FORM.far says that vectors have no such ends, all tiles are between them.
    """
    low, high = limits
    near, far = constant
    begin, stop = low, high
    if FORM.far:
        begin = tl.minimum(tl.maximum(low, round_down(near, FORM.rows)), high)
        stop = tl.maximum(begin, tl.minimum(round_up(far, FORM.rows), high))
    return low, begin, stop, high


@kernel
def key_bands(first, owner, bias, where, FORM: tl.constexpr):
    """Bounds of the keys of a tile of queries of a sequence and head, its owner: past, between, future."""
    low, _first, _second, _third, _end, high = key_range(first, owner, bias, where, FORM)
    future = first + FORM.rows - 1 - bias.origin + bias.last
    # under a causal mask the last entry is that of the query's own key, which no range of its own has
    future = high if FORM.causal else future
    return band_bounds((low, high), (first - bias.origin + 1, future), FORM)


@kernel
def query_bands(first, owner, bias, where, FORM: tl.constexpr):
    """Bounds of the queries of a tile of keys, of a sequence and key head: future, between, past."""
    low, _first, _second, _third, _end, high = query_range(first, owner, bias, where, FORM)
    future = first + bias.origin - bias.last + 1
    future = low if FORM.causal else future
    return band_bounds((low, high), (future, first + FORM.rows - 1 + bias.origin), FORM)


@kernel
def load_half(band, head, first, last, FORM: tl.constexpr, VALUES: tl.constexpr):
    """Load the vectors of a tile's size of entries from `first` on, which may lie beyond the ends."""
    WIDTH: tl.constexpr = FORM.depth if VALUES else FORM.width
    PADDED: tl.constexpr = FORM.padded_depth if VALUES else FORM.padded_width
    entry = tl.minimum(tl.maximum(first + tl.arange(0, FORM.rows), 0), last)
    channel = tl.arange(0, PADDED)
    place = band.data + head.to(tl.int64) * band.head + (entry[:, None] * WIDTH + channel[None, :])
    real = (channel < WIDTH)[None, :]
    x = tl.load(place, mask=real, other=0.0) if WIDTH != PADDED else tl.load(place)
    return x.to(tl.float32) if FORM.upcast else x


@kernel
def load_vector(band, head, entry, FORM: tl.constexpr, VALUES: tl.constexpr):
    """Load the vector of one entry in float32."""
    WIDTH: tl.constexpr = FORM.depth if VALUES else FORM.width
    PADDED: tl.constexpr = FORM.padded_depth if VALUES else FORM.padded_width
    channel = tl.arange(0, PADDED)
    place = band.data + head.to(tl.int64) * band.head + entry * WIDTH + channel
    return tl.load(place, mask=channel < WIDTH, other=0.0).to(tl.float32)


@kernel
def times_vector(tokens, band, head, entry, FORM: tl.constexpr, VALUES: tl.constexpr):
    """Product of each token with the vector of one entry."""
    return tl.sum(tokens.to(tl.float32) * load_vector(band, head, entry, FORM, VALUES)[None, :], 1)


@kernel
def is_upper(token, x, FORM: tl.constexpr, BY_KEY: tl.constexpr):
    """Whether column x of a token belongs to the upper half of the band."""
    upper = x <= token if BY_KEY else token + x < FORM.rows
    return upper


@kernel
def half_products(tokens, entries, table, FORM: tl.constexpr, TOKENS_FIRST: tl.constexpr, VALUES: tl.constexpr):
    """Products of the tokens of a tile with the vectors of half a band, plus the numbers of its entries in a table.

    `entries` and `table` are as in `read_band`; the half begins with the entry. Tokens are in rows if TOKENS_FIRST,
    else in columns.
    """
    SIZE: tl.constexpr = FORM.rows
    band, head, first, last = entries
    half = load_half(band, head, first, last, FORM, VALUES)
    sums = tl.zeros([SIZE, SIZE], tl.float32)
    if table is not None:
        numbers = tl.load(table + tl.minimum(tl.maximum(first + tl.arange(0, SIZE), 0), last))
        sums += numbers[None, :] if TOKENS_FIRST else numbers[:, None]
    if TOKENS_FIRST:
        sums = tl.dot(tokens, tl.trans(half), sums, input_precision=FORM.products)
    else:
        sums = tl.dot(half, tl.trans(tokens), sums, input_precision=FORM.products)
    return sums


@kernel
def read_band(
    tokens,
    entries,
    FORM: tl.constexpr,
    BY_KEY: tl.constexpr,
    KEYS_FIRST: tl.constexpr,
    VALUES: tl.constexpr,
    table=None,
):
    """Products of the tokens of a tile with the vector of each pair, plus the numbers of a table if there is one.

    `tokens` are keys if BY_KEY, else queries or their outputs' gradients; the result has keys in rows if KEYS_FIRST.
    `entries` are a band, the head, the entry of the tile's first pair and the last entry. `table` is the address of
    the number of the first of all entries.
    """
    AXIS: tl.constexpr = 1 if BY_KEY == KEYS_FIRST else 0
    SIGN: tl.constexpr = 1 if KEYS_FIRST else -1
    band, head, first, last = entries
    below = half_products(tokens, (band, head, first - FORM.rows, last), table, FORM, AXIS == 1, VALUES)
    above = half_products(tokens, entries, table, FORM, AXIS == 1, VALUES)
    return skewed(below, above, AXIS, SIGN, -SIGN, FORM)


@kernel
def by_offset(pairs, FORM: tl.constexpr, BY_KEY: tl.constexpr, KEYS_FIRST: tl.constexpr):
    """Float32 numbers of pairs by offset, for the upper and the lower half of the band; 0 where the other has them.

    The transpose of `read_band`. Tokens are in the rows of the result if they are in those of the tile, else columns.
    """
    SIZE: tl.constexpr = FORM.rows
    a = tl.arange(0, SIZE)[:, None]
    b = tl.arange(0, SIZE)[None, :]
    SIGN: tl.constexpr = -1 if BY_KEY else 1
    if BY_KEY == KEYS_FIRST:
        upper = is_upper(a, b, FORM, BY_KEY)
        found = skewed(pairs, pairs, 1, 1, SIGN, FORM)
    else:
        upper = is_upper(b, a, FORM, BY_KEY)
        found = skewed(pairs, pairs, 0, SIGN, 1, FORM)
    return tl.where(upper, found, 0.0), tl.where(upper, 0.0, found)


@kernel
def add_vectors(sums, pairs, entries, FORM: tl.constexpr, BY_KEY: tl.constexpr, VALUES: tl.constexpr):
    """Add the vectors of all pairs of a tile, each times the number of its pair, to the sums of the tile's rows.

    Rows are keys if BY_KEY, else queries. `entries` are as in `read_band`.
    """
    band, head, first, last = entries
    lower = load_half(band, head, first - FORM.rows, last, FORM, VALUES)
    upper = load_half(band, head, first, last, FORM, VALUES)
    above, below = by_offset(pairs, FORM, BY_KEY, BY_KEY)
    sums = tl.dot(above.to(upper.dtype), upper, sums, input_precision=FORM.products)
    return tl.dot(below.to(lower.dtype), lower, sums, input_precision=FORM.products)


@kernel
def score_pairs(tokens, index, shift, place, inputs, FORM: tl.constexpr, KEYS_FIRST: tl.constexpr):
    """Scores of a tile with the terms of all vectors, masks apart, and the soft cap's tanh: see `score_tile`.

    `tokens` and `index` are those of its queries and of its keys, `shift` is added to the scores of each key, and
    `inputs` are bias, vectors, structure and head. `place` is the entry of its first pair. Keys are in rows if
    KEYS_FIRST.
    """
    queries, keys = tokens
    i, j = index
    bias, vectors, where, head = inputs
    given = bias, where, head
    # beside vectors for queries the numbers of the table are added to their products with these
    BIASED: tl.constexpr = FORM.biased and vectors.asked is None
    if KEYS_FIRST:
        products = tl.dot(keys, tl.trans(queries), input_precision=FORM.products)
        score, squashed = score_tile(products, i[None, :], j[:, None], place, given, shift[:, None], FORM, BIASED)
    else:
        products = tl.dot(queries, tl.trans(keys), input_precision=FORM.products)
        score, squashed = score_tile(products, i[:, None], j[None, :], place, given, shift[None, :], FORM, BIASED)
    if vectors.asked is not None:
        table = None
        if FORM.biased:
            table = bias.table + head.to(tl.int64) * bias.pitch
        entries = vectors.asked, head, place, bias.last
        score += read_band(queries, entries, FORM, False, KEYS_FIRST, False, table) * LOG2E
    if vectors.held is not None:
        entries = vectors.held, head, place, bias.last
        score += read_band(keys, entries, FORM, True, KEYS_FIRST, False) * LOG2E
    return score, squashed
