# pyrefly: ignore-errors
"""Biases that are a piecewise linear function of the logarithm of the distance (FIRE, Kerple), and their gradients.

    bias(i, j) = level_p + slope_p z,    z = log(1 + rate d) share_i,    d = |i - j|

where p is the piece of z (`ordinate.ops.log_bias`). z grows with d and the share, so that those of a tile lie between
two numbers, and in one or two pieces where the tile is far from the diagonal: the line of the first is evaluated for
all pairs, and those of the others where z is beyond their knots. With the gradient c of a score the gradients are, of
the line of a piece, the sums of c and of c z over its pairs, and

    of share_i:  sum over j of c slope_p log(1 + rate d)
    of rate:     sum over i and j of c slope_p share_i d / (1 + rate d)
"""

from typing import Any, NamedTuple

import triton.language as tl

from ordinate.ops.triton.kernel import kernel

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


class Curve(NamedTuple):
    """The numbers of one call, float32; kernels take addresses.

    Args:
        knots: where pieces meet, ascending, as many as pieces; the last are infinite.
        lines: of each head the rate, the levels of its pieces and their slopes.
        shares: of each query (batch or 1, queries).
        batch: stride of the batch in `shares`; 0 if sequences have them in common.
    """

    knots: Any
    lines: Any
    shares: Any
    batch: Any


@kernel
def load_shares(bias, batch, i, where, FORM: tl.constexpr):
    """Shares of a tile of queries; anything where the bias is of another kind."""
    shares = i
    if FORM.pieces > 0:
        place = bias.curve.shares + batch.to(tl.int64) * bias.curve.batch + i
        shares = tl.load(place, mask=i < where.queries, other=0.0)
    return shares


@kernel
def curve_tile(i, j, corner, inputs, FORM: tl.constexpr):
    """Bias of a tile in units of log2; `corner` is as in `positions`."""
    bias, _where, head = inputs
    z, _steps, _far = positions(i, j, corner, inputs, FORM)
    lines = bias.curve.lines + head.to(tl.int64) * (1 + 2 * FORM.pieces) + 1
    low, high = piece_range(corner, inputs, FORM)
    made = tl.load(lines + low) * LOG2E + (tl.load(lines + FORM.pieces + low) * LOG2E) * z
    if FORM.pieces > 1:
        for piece in tl.range(low + 1, high + 1):
            line = tl.load(lines + piece) * LOG2E + (tl.load(lines + FORM.pieces + piece) * LOG2E) * z
            made = tl.where(z > tl.load(bias.curve.knots + piece - 1), line, made)
    return made


@kernel
def positions(i, j, corner, inputs, FORM: tl.constexpr):
    """Where on the curve the pairs of a tile are: z, the logarithm before it is multiplied by the share, distance.

    `corner` are the first query and the first key of the tile, and the shares of its queries.
    """
    bias, where, head = inputs
    _first, _begin, shares = corner
    rate = tl.load(bias.curve.lines + head.to(tl.int64) * (1 + 2 * FORM.pieces))
    far = tl.abs((i + where.start - j).to(tl.float32))
    steps = tl.log2(1.0 + rate * far) * LN2
    z = steps * (shares[:, None] if i.shape[1] == 1 else shares[None, :])
    return z, steps, far


@kernel
def piece_range(corner, inputs, FORM: tl.constexpr):
    """The first and the last piece in which pairs of a tile may be."""
    bias, where, head = inputs
    first, begin, shares = corner
    low, high = 0, 0
    if FORM.pieces > 1:
        rate = tl.load(bias.curve.lines + head.to(tl.int64) * (1 + 2 * FORM.pieces))
        ahead = first + where.start - begin
        nearest = tl.maximum(tl.maximum(ahead - FORM.columns + 1, -ahead - FORM.rows + 1), 0)
        farthest = tl.maximum(ahead + FORM.rows - 1, FORM.columns - 1 - ahead)
        lowest = tl.log2(1.0 + rate * nearest.to(tl.float32)) * LN2 * tl.min(shares, 0)
        highest = tl.log2(1.0 + rate * farthest.to(tl.float32)) * LN2 * tl.max(shares, 0)
        knots = tl.load(bias.curve.knots + tl.arange(0, FORM.pieces))
        low = tl.sum((knots < lowest).to(tl.int32), 0)
        high = tl.sum((knots < highest).to(tl.int32), 0)
    return low, high


@kernel
def curve_change(change, i, j, corner, inputs, sums, FORM: tl.constexpr):
    """Add the gradients of a tile of scores to sums for shares, rate, levels and slopes.

    The first two are of each query, that of the rate without its share; the others are of each piece.
    """
    of_shares, of_rate, levels, slopes = sums
    bias, _where, head = inputs
    z, steps, far = positions(i, j, corner, inputs, FORM)
    table = bias.curve.lines + head.to(tl.int64) * (1 + 2 * FORM.pieces)
    rate = tl.load(table)
    low, high = piece_range(corner, inputs, FORM)
    piece = tl.arange(0, FORM.pieces)
    levels += tl.where(piece == low, tl.sum(tl.sum(change, 1), 0), 0.0)
    slopes += tl.where(piece == low, tl.sum(tl.sum(change * z, 1), 0), 0.0)
    tilt = tl.zeros_like(z) + tl.load(table + 1 + FORM.pieces + low)
    if FORM.pieces > 1:
        for beyond in tl.range(low + 1, high + 1):
            past = z > tl.load(bias.curve.knots + beyond - 1)
            tilt = tl.where(past, tl.load(table + 1 + FORM.pieces + beyond), tilt)
            moved = tl.where(past, change, 0.0)
            # what is beyond a knot is in the next piece, or in one after it, and no more in the piece before
            side = (piece == beyond).to(tl.float32) - (piece == beyond - 1).to(tl.float32)
            levels += side * tl.sum(tl.sum(moved, 1), 0)
            slopes += side * tl.sum(tl.sum(moved * z, 1), 0)
    pull = change * tilt
    of_shares += tl.sum(pull * steps, 1)
    of_rate += tl.sum(pull * (far / (1.0 + rate * far)), 1)
    return of_shares, of_rate, levels, slopes


@kernel
def store_lines(place, of_rate, levels, slopes, FORM: tl.constexpr):
    """Store a tile's share of the gradients of rate, levels and slopes; `of_rate` is that of each of its queries."""
    piece = tl.arange(0, FORM.pieces)
    tl.store(place, tl.sum(of_rate, 0))
    tl.store(place + 1 + piece, levels)
    tl.store(place + 1 + FORM.pieces + piece, slopes)
