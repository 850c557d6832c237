# pyrefly: ignore-errors
"""Ranges of tiles that a program walks through: with masks or without, with the bias or a constant for it."""

import triton.language as tl

from ordinate.ops.triton.kernel import kernel


@kernel
def round_down(x, SIZE: tl.constexpr):
    """Round down to a multiple; never below zero."""
    return tl.maximum(x, 0) // SIZE * SIZE


@kernel
def round_up(x, SIZE: tl.constexpr):
    """Round up to a multiple; never below zero."""
    return (tl.maximum(x, 0) + SIZE - 1) // SIZE * SIZE


@kernel
def key_range(first, owner, bias, where, FORM: tl.constexpr):
    """Bounds of the keys of a tile of queries of a sequence and head, its owner: see `in_order`."""
    ROWS: tl.constexpr = FORM.rows
    COLUMNS: tl.constexpr = FORM.columns
    earliest = first + where.start
    latest = tl.minimum(first + ROWS, where.queries) - 1 + where.start
    low = 0
    high = where.keys
    whole = low
    end = where.keys
    if FORM.causal:
        high = tl.minimum(high, latest + 1)
        end = tl.minimum(end, earliest + 1)
    if FORM.windowed:
        low = tl.maximum(low, earliest - where.window + 1)
        whole = latest - where.window + 1
        if not FORM.causal:
            high = tl.minimum(high, latest + where.window)
            end = tl.minimum(end, earliest + where.window)
    past = first - bias.origin + 1 if FORM.far else end
    future = first + ROWS - 1 - bias.origin + bias.last if FORM.far else end
    if where.spans is not None:
        low, high = narrowed(low, high, first // ROWS, owner, where)
    low, first, second, third, end, high = in_order((low, high), whole, end, (past, future), COLUMNS, FORM)
    # nothing lies in the future
    third = end if FORM.causal else third
    return low, first, second, third, end, high


@kernel
def query_range(first, owner, bias, where, FORM: tl.constexpr):
    """Bounds of the queries of a tile of keys, of a sequence and key head: future and past are exchanged."""
    ROWS: tl.constexpr = FORM.rows
    COLUMNS: tl.constexpr = FORM.columns
    earliest = first - where.start
    latest = tl.minimum(first + COLUMNS, where.keys) - 1 - where.start
    low = 0
    high = where.queries
    whole = low
    end = where.queries
    if FORM.causal:
        low = tl.maximum(low, earliest)
        whole = latest
    if FORM.windowed:
        high = tl.minimum(high, latest + where.window)
        end = tl.minimum(end, earliest + where.window)
        if not FORM.causal:
            low = tl.maximum(low, earliest - where.window + 1)
            whole = latest - where.window + 1
    future = first + bias.origin - bias.last + 1 if FORM.far else end
    past = first + COLUMNS - 1 + bias.origin if FORM.far else end
    if where.spans is not None:
        low, high = narrowed(low, high, first // COLUMNS, owner, where)
    low, first, second, third, end, high = in_order((low, high), whole, end, (future, past), ROWS, FORM)
    second = first if FORM.causal and FORM.far else second
    return low, first, second, third, end, high


@kernel
def narrowed(low, high, tile, owner, where):
    """Narrow a range to the span of a tile."""
    batch, head = owner
    place = where.spans + batch.to(tl.int64) * where.span_batch + head * where.span_head + 2 * tile
    return tl.maximum(low, tl.load(place)), tl.minimum(high, tl.load(place + 1))


@kernel
def in_order(limits, whole, end, constant, SIZE: tl.constexpr, FORM: tl.constexpr):
    """Bounds of five ranges of tiles, in ascending order.

    `limits` are the bounds of what may be visible. From `whole` to `end` all pairs are. Up to the first of `constant`
    and from the second on the bias is constant. Returned are the beginnings of the ranges: partly visible; visible
    with a constant bias; the rest; visible with a constant bias; partly visible; and the end of the last.
    """
    low, high = limits
    low = round_down(low, SIZE)
    high = tl.maximum(low, high)
    near, far = constant
    if FORM.documents:
        whole = high
    first = tl.minimum(tl.maximum(low, round_up(whole, SIZE)), high)
    end = tl.maximum(first, round_down(tl.minimum(end, high), SIZE))
    second = tl.maximum(first, tl.minimum(round_down(near, SIZE), end))
    third = tl.maximum(second, tl.minimum(round_up(far, SIZE), end))
    return low, first, second, third, end, high


@kernel
def one_range(first, stop):
    """A single range in the form of `in_order`, for `tile_count` and `tile_begin`."""
    return first, stop, stop, stop, stop, stop


@kernel
def tile_count(bounds, SIZE: tl.constexpr):
    """Number of tiles in the first, third and fifth range of `in_order`: those whose bias or mask is read."""
    low, first, second, third, end, high = bounds
    rest = tl.cdiv(tl.maximum(high - end, 0), SIZE)
    return tl.cdiv(tl.maximum(first - low, 0), SIZE) + tl.cdiv(tl.maximum(third - second, 0), SIZE) + rest


@kernel
def tile_begin(step, bounds, SIZE: tl.constexpr):
    """First token of one of these tiles; one loop over three ranges needs fewer registers than three loops."""
    low, first, second, third, end, _high = bounds
    begin = low + step * SIZE
    begin = tl.where(begin < first, begin, begin - tl.cdiv(tl.maximum(first - low, 0), SIZE) * SIZE - low + second)
    behind = begin - tl.cdiv(tl.maximum(third - second, 0), SIZE) * SIZE - second + end
    return tl.where((low + step * SIZE < first) | (begin < third), begin, behind)
