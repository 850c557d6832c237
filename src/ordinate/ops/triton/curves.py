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
def load_curve(bias, batch, head, i, where, FORM: tl.constexpr):
    """What a tile of queries needs of the curve: their shares, the rate, and the knots; else anything."""
    shares, rate, knots = i, 0, i
    if FORM.pieces > 0:
        place = bias.curve.shares + batch.to(tl.int64) * bias.curve.batch + i
        shares = tl.load(place, mask=i < where.queries, other=0.0)
        rate = tl.load(bias.curve.lines + head.to(tl.int64) * (1 + 2 * FORM.pieces))
        knots = tl.load(bias.curve.knots + tl.arange(0, FORM.pieces))
    return shares, rate, knots


@kernel
def curve_place(first, begin, curve, where, FORM: tl.constexpr):
    """Where a tile is on the curve: shares of its queries, the rate, the first and the last piece that it may be in.

    `first` and `begin` are the tile's first query and first key, `curve` is what `load_curve` returns.
    """
    shares, rate, knots = curve
    low, high = 0, 0
    if FORM.pieces > 1:
        ahead = first + where.start - begin
        nearest = tl.maximum(tl.maximum(ahead - FORM.columns + 1, -ahead - FORM.rows + 1), 0)
        farthest = tl.maximum(ahead + FORM.rows - 1, FORM.columns - 1 - ahead)
        lowest = tl.log2(1.0 + rate * nearest.to(tl.float32)) * LN2 * tl.min(shares, 0)
        highest = tl.log2(1.0 + rate * farthest.to(tl.float32)) * LN2 * tl.max(shares, 0)
        low = tl.sum((knots < lowest).to(tl.int32), 0)
        high = tl.sum((knots < highest).to(tl.int32), 0)
    return shares, rate, low, high


@kernel
def add_curve(score, i, j, place, inputs, FORM: tl.constexpr):
    """Add the bias of a tile to its scores, in units of log2; `place` is what `curve_place` returns.

    The loop carries the scores, which keep the layout of the tensor cores: a bias made by itself would go through
    shared memory into it.
    """
    bias, where, head = inputs
    z, _steps, _far, _grown = positions(i, j, place, where, FORM)
    _shares, _rate, low, high = place
    lines = bias.curve.lines + head.to(tl.int64) * (1 + 2 * FORM.pieces) + 1
    level, slope = tl.load(lines + low) * LOG2E, tl.load(lines + FORM.pieces + low) * LOG2E
    score += level + slope * z
    if FORM.pieces > 1:
        for piece in tl.range(low + 1, high + 1):
            # beyond a knot the next line, in place of the one before
            rise = (tl.load(lines + piece) - tl.load(lines + piece - 1)) * LOG2E
            turn = (tl.load(lines + FORM.pieces + piece) - tl.load(lines + FORM.pieces + piece - 1)) * LOG2E
            score += tl.where(z > tl.load(bias.curve.knots + piece - 1), rise + turn * z, 0.0)
    return score


@kernel
def positions(i, j, place, where, FORM: tl.constexpr):
    """Where the pairs of a tile are on the curve: z, its logarithm before the share, distance d, and 1 + rate d."""
    shares, rate, _low, _high = place
    # of integers, each pair would be converted; tokens have fewer digits than float32
    far = tl.abs((i + where.start).to(tl.float32) - j.to(tl.float32))
    grown = 1.0 + rate * far
    steps = log2_of(grown, FORM) * LN2
    z = steps * (shares[:, None] if i.shape[1] == 1 else shares[None, :])
    return z, steps, far, grown


@kernel
def log2_of(x, FORM: tl.constexpr):
    """Logarithm of numbers of at least 1.

    On GPUs of NVIDIA by their instruction, off by less than 2^-22, absolutely below 2 and relatively above. Triton
    calls a function of some twenty instructions, which took most of a tile's time.
    """
    if FORM.nvidia:
        made = tl.inline_asm_elementwise(
            "lg2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        made = tl.log2(x)
    return made


@kernel
def inverse_of(x, FORM: tl.constexpr):
    """Inverse of numbers, on GPUs of NVIDIA by their instruction, off by a unit of the last digit."""
    if FORM.nvidia:
        made = tl.inline_asm_elementwise(
            "rcp.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        made = 1.0 / x
    return made


@kernel
def curve_change(change, i, j, place, inputs, sums, FORM: tl.constexpr):
    """Add the gradients of a tile of scores to sums for shares, rate, levels and slopes, and to a run.

    The first two are of each query, that of the rate without its share; the others are of each piece. A run has the
    sums of each query for levels and slopes, and its piece: that of all tiles since it changed last. So the sums over
    queries, for which threads wait for each other, are taken once for a run.
    """
    of_shares, of_rate, levels, slopes, own, along, piece = sums
    bias, where, head = inputs
    z, steps, far, grown = positions(i, j, place, where, FORM)
    _shares, _rate, low, high = place
    table = bias.curve.lines + head.to(tl.int64) * (1 + 2 * FORM.pieces) + 1 + FORM.pieces
    # a branch of the kernel within one of its compilation
    if FORM.pieces > 1:  # noqa: SIM102
        if low != piece:
            levels, slopes = end_run(levels, slopes, (own, along, piece), FORM)
            own, along = tl.zeros_like(own), tl.zeros_like(along)
            piece = low
    own += tl.sum(change, 1)
    along += tl.sum(change * z, 1)
    pull = change * tl.load(table + low)
    if FORM.pieces > 1:
        index = tl.arange(0, FORM.pieces)
        for beyond in tl.range(low + 1, high + 1):
            past = z > tl.load(bias.curve.knots + beyond - 1)
            pull = tl.where(past, change * tl.load(table + beyond), pull)
            moved = tl.where(past, change, 0.0)
            # what is beyond a knot is in the next piece, or in one after it, and no more in the piece before
            side = (index == beyond).to(tl.float32) - (index == beyond - 1).to(tl.float32)
            levels += side * tl.sum(tl.sum(moved, 1), 0)
            slopes += side * tl.sum(tl.sum(moved * z, 1), 0)
    of_shares += tl.sum(pull * steps, 1)
    of_rate += tl.sum(pull * (far * inverse_of(grown, FORM)), 1)
    return of_shares, of_rate, levels, slopes, own, along, piece


@kernel
def end_run(levels, slopes, run, FORM: tl.constexpr):
    """Add the sums of a run to those of its piece."""
    own, along, piece = run
    of_piece = tl.arange(0, FORM.pieces) == piece
    return levels + tl.where(of_piece, tl.sum(own, 0), 0.0), slopes + tl.where(of_piece, tl.sum(along, 0), 0.0)


@kernel
def store_lines(place, of_rate, levels, slopes, FORM: tl.constexpr):
    """Store a tile's share of the gradients of rate, levels and slopes; `of_rate` is that of each of its queries."""
    piece = tl.arange(0, FORM.pieces)
    tl.store(place, tl.sum(of_rate, 0))
    tl.store(place + 1 + piece, levels)
    tl.store(place + 1 + FORM.pieces + piece, slopes)
