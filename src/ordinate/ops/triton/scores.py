# pyrefly: ignore-errors
"""Parts that the attention kernels share: tiles of tokens, the range of visible keys, and the scores of a tile.

Scores are kept in units of log2, so that exp2 gives the weights.
"""

from typing import Any, NamedTuple

import triton.language as tl

from ordinate.ops.triton.curves import LOG2E, add_curve, curve_place
from ordinate.ops.triton.kernel import kernel

INFINITY = tl.constexpr(float("inf"))
# sides of a tile: its bias is read, or all of its keys lie beyond one end of the table
NEAR, PAST, FUTURE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


class Bias(NamedTuple):
    """What is added to the scores, in natural units; kernels take tensors as addresses, and None.

    Args:
        table: float32 numbers (heads, entries) by memory offset; offsets beyond its ends have its ends.
        slopes: float32 numbers (2, heads) by which the bias falls with each token behind and ahead.
        sinks: float32 scores (heads) of a further key without value.
        origin: entry of the table whose offset is zero: key index minus query index, both from 0.
        last: last entry of the table.
        pitch: stride of the heads in the table. Rows go on for `outputs.TABLE_PADDING` entries beyond both ends,
            except in decoding.
        curve: `ordinate.ops.triton.curves.Curve`. Or None.
    """

    table: Any
    slopes: Any
    sinks: Any
    origin: Any
    last: Any
    pitch: Any
    curve: Any = None


class Structure(NamedTuple):
    """Sizes and visibility of one call.

    Args:
        heads: query heads.
        key_heads: heads of keys and values.
        queries: number of queries.
        keys: number of keys.
        start: index of the first query among the keys.
        window: keys that a query may attend to on a side, its own included.
        scale: multiplies q.k.
        cap: soft cap of the scaled products.
        q_document: document of each query, int64 (batch, queries); None: one document.
        k_document: document of each key; that of padding is one that no query has.
        document_rows: 1 if documents differ between sequences, else 0.
        spans: for each tile the first token on the other side that it needs and the end of its range, int32
            (batch or 1, heads or 1, tiles, 2); None: what causal mask and window leave.
        span_batch: stride of the batch in `spans`; 0 if all sequences share them.
        span_head: likewise of the heads, key heads for tiles of keys.
        poison: 0 for finite keys with finite values, else NaN, float32 (batch, key heads, keys).
    """

    heads: Any
    key_heads: Any
    queries: Any
    keys: Any
    start: Any
    window: Any
    scale: Any
    cap: Any
    q_document: Any
    k_document: Any
    document_rows: Any
    spans: Any
    span_batch: Any
    span_head: Any
    poison: Any


class Form(NamedTuple):
    """What a kernel is compiled for.

    Args:
        rows: queries per tile.
        columns: keys per tile.
        groups: query heads per key head.
        width: channels of queries and keys.
        depth: channels of values.
        padded_width: the next power of two, at least 16.
        padded_depth: likewise.
        causal: causal mask.
        windowed: sliding window.
        documents: documents or padding.
        capped: soft cap.
        biased: whether there is a table, slopes or a curve.
        sunk: whether there are sinks.
        far: whether the table ends before the farthest pair, so that far tiles have a constant bias.
        learned: whether the bias needs a gradient.
        upcast: whether 16-bit numbers are widened before products, for Triton's interpreter.
        nvidia: whether it is for a GPU of NVIDIA, with its instructions.
        products: how float32 is multiplied, as in `ordinate.ops.triton.tiles.Tiles`.
        pieces: pieces of the curve, a power of two; 0: there is none.
    """

    rows: int
    columns: int
    groups: int
    width: int
    depth: int
    padded_width: int
    padded_depth: int
    causal: bool
    windowed: bool
    documents: bool
    capped: bool
    biased: bool
    sunk: bool
    far: bool
    learned: bool
    upcast: bool
    nvidia: bool
    products: str
    pieces: int = 0


@kernel
def base(x, batch, head):
    """Pointer to the first entry of one head of one sequence; in 64 bits, since offsets may exceed 2^31."""
    return x.data + batch.to(tl.int64) * x.batch + head.to(tl.int64) * x.head


@kernel
def load_tile(
    start, row, begin, real, FORM: tl.constexpr, SIZE: tl.constexpr, VALUES: tl.constexpr, MASKED: tl.constexpr
):
    """Load a tile of (tokens, channels); if MASKED, tokens that are not `real` are zero, as missing channels are."""
    WIDTH: tl.constexpr = FORM.depth if VALUES else FORM.width
    PADDED: tl.constexpr = FORM.padded_depth if VALUES else FORM.padded_width
    token = tl.arange(0, SIZE)
    channel = tl.arange(0, PADDED)
    # one address of 64 bits, and offsets of 32
    place = start + tl.cast(begin, tl.int64) * row + (token[:, None] * row + channel[None, :])
    if MASKED:
        x = tl.load(place, mask=real[:, None] & (channel < WIDTH)[None, :], other=0.0)
    elif WIDTH != PADDED:
        x = tl.load(place, mask=(channel < WIDTH)[None, :], other=0.0)
    else:
        x = tl.load(place)
    return x.to(tl.float32) if FORM.upcast else x


@kernel
def load_finite(start, row, begin, real, FORM: tl.constexpr, SIZE: tl.constexpr, MASKED: tl.constexpr):
    """Load a tile of queries in a backward pass; zeros where one is not finite, if it may be hidden.

    The gradients of its scores are zero if it sees nothing, which does not hide NaN in products. Without a sink its
    log-sum-exp says that it sees nothing, and it is not `real`.
    """
    x = load_tile(start, row, begin, real, FORM, SIZE, False, MASKED)
    if FORM.sunk and MASKED:
        x = tl.where((tl.sum(x.to(tl.float32) * 0.0, 1) == 0.0)[:, None], x, 0.0).to(x.dtype)
    return x


@kernel
def store_tile(start, row, begin, limit, x, FORM: tl.constexpr, VALUES: tl.constexpr):
    """Store the existing tokens and channels of a tile."""
    WIDTH: tl.constexpr = FORM.depth if VALUES else FORM.width
    PADDED: tl.constexpr = FORM.padded_depth if VALUES else FORM.padded_width
    token = tl.arange(0, x.shape[0])
    channel = tl.arange(0, PADDED)
    place = start + tl.cast(begin, tl.int64) * row + (token[:, None] * row + channel[None, :])
    tl.store(place, x, mask=(token < limit - begin)[:, None] & (channel < WIDTH)[None, :])


@kernel
def score_tile(products, i, j, place, inputs, shift, FORM: tl.constexpr, BIASED: tl.constexpr):
    """Scores of a tile from its products, masks apart, and the soft cap's tanh (the products if there is no cap).

    `i` and `j` are query and key indices of shapes that broadcast to the tile, `place` is what `tile_place` returns,
    `inputs` are bias, structure and head, and `shift` is added to the scores of each key.
    """
    _bias, where, _head = inputs
    squashed = products
    if FORM.capped:
        squashed = tanh(products * (where.scale / where.cap))
        score = squashed * (where.cap * LOG2E) + shift
    else:
        score = products * (where.scale * LOG2E) + shift
    if BIASED and FORM.pieces > 0:
        score = add_curve(score, i, j, place, inputs, FORM)
    elif BIASED:
        score += bias_tile(i, j, place, inputs, FORM)
    return score, squashed


@kernel
def tanh(x):
    """Hyperbolic tangent: by its series where an exponential would cancel, by one that cannot overflow elsewhere."""
    y = x * x
    series = -0.008863235529902197
    series = series * y + 0.021869488536155203
    series = series * y - 0.05396825396825397
    series = series * y + 0.13333333333333333
    series = series * y - 0.3333333333333333
    grown = tl.exp2(tl.abs(x) * (-2.0 * LOG2E))
    far = (1.0 - grown) / (1.0 + grown)
    return tl.where(y < 0.1225, x + x * y * series, tl.where(x < 0, -far, far))


@kernel
def bias_tile(i, j, place, inputs, FORM: tl.constexpr):
    """Bias of a tile in units of log2, from the table or the slopes.

    `place` is the table's entry of the pair of the tile's first query and first key, or None where its rows are of
    several heads.
    """
    bias, where, head = inputs
    if bias.table is not None and place is None:
        entry = tl.minimum(tl.maximum(j - i + bias.origin, 0), bias.last)
        added = tl.load(bias.table + head.to(tl.int64) * bias.pitch + entry) * LOG2E
    elif bias.table is not None:
        # the table goes on beyond its ends (`TABLE_PADDING`): no entry of a pair is compared with them
        place = tl.minimum(tl.maximum(place, -FORM.columns), bias.last + FORM.rows).to(tl.int64)
        # 64 bits: what differs between the pairs of a thread is then a constant in the instruction that loads
        if i.shape[1] == 1:
            c, r = tl.arange(0, j.shape[1]).to(tl.int64)[None, :], tl.arange(0, i.shape[0]).to(tl.int64)[:, None]
        else:
            c, r = tl.arange(0, j.shape[0]).to(tl.int64)[:, None], tl.arange(0, i.shape[1]).to(tl.int64)[None, :]
        added = load_numbers(bias.table + head.to(tl.int64) * bias.pitch + (place + c - r), FORM) * LOG2E
    else:
        behind = (i + where.start).to(tl.float32) - j.to(tl.float32)
        added = -behind * (tl.load(bias.slopes + head) * LOG2E)
        if not FORM.causal:
            ahead = tl.load(bias.slopes + where.heads + head) * LOG2E
            added = tl.where(behind < 0, behind * ahead, added)
    return added


@kernel
def load_numbers(place, FORM: tl.constexpr):
    """Load a tile of float32 numbers by their addresses into registers.

    Triton copies what a loop loads through shared memory, number by number where they are not consecutive, which
    takes several times as long as the tile's products. It leaves instructions as they are.
    """
    if FORM.nvidia:
        numbers = tl.inline_asm_elementwise(
            "ld.global.f32 $0, [$1];", "=f,l", [place.to(tl.int64)], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        numbers = tl.load(place)
    return numbers


@kernel
def tile_place(first, begin, curve, bias, where, FORM: tl.constexpr):
    """Where a tile is, from its first query and first key: on the curve, or the table's entry of its first pair."""
    return curve_place(first, begin, curve, where, FORM) if FORM.pieces > 0 else begin - first + bias.origin


@kernel
def visible_tile(i, j, asks, holds, where, FORM: tl.constexpr):
    """Whether the queries of a tile may attend to its keys; `asks` and `holds` are their documents."""
    seen = (i < where.queries) & (j < where.keys)
    behind = i + where.start - j
    if FORM.causal:
        seen = seen & (behind >= 0)
    if FORM.windowed:
        seen = seen & (behind < where.window)
        if not FORM.causal:
            seen = seen & (behind > -where.window)
    if FORM.documents:
        seen = seen & (asks == holds)
    return seen


@kernel
def load_documents(documents, where, batch, token, limit, FORM: tl.constexpr):
    """Documents of a tile of tokens; anything where all are of one."""
    asked = token
    if FORM.documents:
        place = documents + (batch * where.document_rows).to(tl.int64) * limit + token
        asked = tl.load(place, mask=token < limit, other=-1)
    return asked


@kernel
def load_poison(where, batch, head, token, MASKED: tl.constexpr):
    """Poison of a tile of keys: see `Structure`."""
    place = where.poison + (batch * where.key_heads + head).to(tl.int64) * where.keys + token
    poison = tl.load(place, mask=token < where.keys, other=0.0) if MASKED else tl.load(place)
    return poison


@kernel
def end_of_table(bias, head, FORM: tl.constexpr, SIDE: tl.constexpr):
    """The bias before the first or after the last entry of the table, in units of log2; 0 where tiles are near."""
    end = 0.0
    if FORM.far and SIDE == PAST:
        end = tl.load(bias.table + head.to(tl.int64) * bias.pitch) * LOG2E
    if FORM.far and SIDE == FUTURE:
        end = tl.load(bias.table + head.to(tl.int64) * bias.pitch + bias.last) * LOG2E
    return end
