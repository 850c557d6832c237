# pyrefly: ignore-errors
"""The first key that each query needs under a linear bias, on the device: see `ordinate.ops.triton.decay`."""

import math

import torch
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.shapes import Keys, Queries
from ordinate.ops.decay_cutoff import SKIPPED_SHARE
from ordinate.ops.score_bounds import GROUP
from ordinate.ops.triton.kernel import kernel, launch, matrix
from ordinate.ops.triton.scores import INFINITY, Form, Structure, base, load_tile, tanh
from ordinate.ops.triton.tiles import Tile

# a tile of queries is a group of keys
TILE = Tile(GROUP, GROUP, 8, 1)
# of the largest score: more than norms and products are rounded by
MARGIN = tl.constexpr(1e-3)
LOG_GROUP = tl.constexpr(math.log(GROUP))
SHARE = tl.constexpr(-math.log(SKIPPED_SHARE * torch.finfo(torch.float32).eps))


def needed_keys(
    q: Queries, k: Keys, slopes: Float[Tensor, "2 h"], where: Structure, form: Form
) -> Int[Tensor, "b h i"]:
    """Return for each query the first key that it needs; never synchronises.

    Args:
        q: queries.
        k: keys; the last is that of the last query.
        slopes: by which the bias falls with each token behind and ahead, float32.
        where: sizes, window, scale, cap and poison.
        form: what kernels of `TILE` are compiled for.
    """
    batch, heads, queries, width = q.shape
    shift = -where.start % GROUP
    groups = -(-(k.shape[2] + shift) // GROUP)
    squares = k.new_empty(batch, k.shape[1], groups, dtype=torch.float32)
    means = k.new_empty(batch, k.shape[1], groups, width, dtype=torch.float32)
    launch(bound_keys, (groups, batch * k.shape[1]), (matrix(k), squares, means, shift, where, form), TILE.options)
    needed = q.new_empty(batch, heads, queries, dtype=torch.int32)
    first = groups, (where.start + shift) // GROUP
    bounds = squares.amax(-1), means, slopes, first
    arguments = (matrix(q), matrix(k)), bounds, needed, where, form
    launch(find_needed, (-(-queries // GROUP), batch * heads), arguments, TILE.options)
    return needed


@kernel
def bound_keys(k, squares, means, shift, where, FORM: tl.constexpr):
    """Store the largest squared norm of a group of keys and the mean of its keys.

    The norm is infinite if a key or its value is not finite: what sees it becomes NaN, however small its weight.
    """
    batch, head = tl.program_id(1) // where.key_heads, tl.program_id(1) % where.key_heads
    begin = tl.program_id(0) * FORM.rows - shift
    j = begin + tl.arange(0, FORM.rows)
    real = (j >= 0) & (j < where.keys)
    keys = load_tile(base(k, batch, head), k.row, begin, real, FORM, FORM.rows, False, True).to(tl.float32)
    found = tl.sum(keys * keys, 1)
    poison = where.poison + tl.program_id(1).to(tl.int64) * where.keys + j
    found += tl.load(poison, mask=real, other=0.0)
    place = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    tl.store(squares + place, tl.max(tl.where(found < INFINITY, found, INFINITY), 0))
    channel = tl.arange(0, FORM.padded_width)
    tl.store(means + place * FORM.width + channel, tl.sum(keys, 0) / FORM.rows, mask=channel < FORM.width)


@kernel
def find_needed(given, bounds, needed, where, FORM: tl.constexpr):
    """Store the first needed key of each query of a tile, which is as large as a group; `given` are queries and keys.

    `bounds` are the largest squared norm of the keys of each head, the means of the groups, the slopes, and the
    number of groups and the first that the queries belong to.
    """
    ROWS: tl.constexpr = FORM.rows
    q, k = given
    longest, _means, slopes, _first = bounds
    batch, head = tl.program_id(1) // where.heads, tl.program_id(1) % where.heads
    key_head = head // FORM.groups
    owner = batch * where.key_heads + key_head
    row = tl.arange(0, ROWS)
    i = tl.program_id(0) * ROWS + row
    real = i < where.queries
    queries = load_tile(base(q, batch, head), q.row, tl.program_id(0) * ROWS, real, FORM, ROWS, False, True)
    queries = queries.to(tl.float32)
    begin = where.start + tl.program_id(0) * ROWS
    keys = load_tile(base(k, batch, key_head), k.row, begin, real, FORM, ROWS, False, True).to(tl.float32)
    own = tl.sum(queries * keys, 1) * where.scale
    norms = tl.sqrt(tl.sum(queries * queries, 1)) * tl.sqrt(tl.load(longest + owner))
    highest = norms * tl.abs(where.scale)
    mean = mean_score(queries, row, owner, bounds, FORM) * where.scale
    room = MARGIN * highest
    highest, own, mean = highest + room, own - room, mean - room
    finite = (highest < INFINITY) & (tl.abs(own) < INFINITY)
    slope = tl.load(slopes + head)
    behind = (row + 1) % ROWS
    above = highest - mean - LOG_GROUP + slope * (behind + (ROWS - 1) / 2)
    # the first group ends before the first keys
    above = tl.where(i >= ROWS - 1, above, INFINITY)
    if FORM.windowed:
        above = tl.where(behind + ROWS <= where.window, above, INFINITY)
    if FORM.capped:
        highest, own = where.cap * tanh(highest / where.cap), where.cap * tanh(own / where.cap)
    # 1 - exp(-s) = 2 exp(-s / 2) sinh(s / 2) is at least s exp(-s / 2), which has its digits for small s, too
    rest = SHARE + slope / 2 - tl.log(slope)
    distance = (tl.minimum(highest - own, above) + rest) / slope
    # a slope that is not positive has an infinite rest, or NaN
    certain = finite & (tl.abs(distance) < INFINITY)
    far = tl.ceil(tl.minimum(tl.maximum(tl.where(certain, distance, 0.0), 0.0), where.keys * 1.0)).to(tl.int32)
    found = tl.where(certain, tl.maximum(where.start + i - far, 0), 0)
    tl.store(needed + tl.program_id(1).to(tl.int64) * where.queries + i, found, mask=real)


@kernel
def mean_score(queries, row, owner, bounds, FORM: tl.constexpr):
    """Product of each query with the mean of the last whole group of keys that it sees; 0 where there is none."""
    _longest, means, _slopes, numbers = bounds
    groups, first = numbers
    channel = tl.arange(0, FORM.padded_width)
    group = first + tl.program_id(0)
    place = means + (owner.to(tl.int64) * groups + group) * FORM.width + channel
    before = tl.load(place - FORM.width, mask=channel < tl.minimum(group - first, 1) * FORM.width, other=0.0)
    mine = tl.load(place, mask=channel < FORM.width, other=0.0)
    # the last query of a tile sees all of its group
    seen = tl.where((row == FORM.rows - 1)[:, None], mine[None, :], before[None, :])
    return tl.sum(queries * seen, 1)
