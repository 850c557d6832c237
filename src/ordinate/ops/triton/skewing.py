# pyrefly: ignore-errors
"""Skewing of tiles: what lies on diagonals is brought into rows or columns, or the other way round.

Along the rows of a tile Triton gathers by shuffles within a warp, to which it gives whole rows: tiles are moved to
another layout, and back, through shared memory. Along the only axis of a vector it gathers by one pass through shared
memory, in any layout: each thread stores its numbers and loads those that it needs. So tiles are gathered as vectors.
Their order is such that no two lanes of a warp use the same bank of shared memory, neither when they store nor when
they load, where tiles are as tensor cores leave them: eight rows and four pairs of columns to a warp.

On GPUs of AMD a warp has a whole tile, in which Triton gathers vectors by shuffles too, one for every two registers:
there, and in Triton's interpreter, rows are rotated. So are those of tiles of 16 rows: with places of their own these
kernels, most of them without tensor cores, would spill registers.
"""

import triton.language as tl

from ordinate.ops.triton.kernel import kernel


@kernel
def skewed(first, second, AXIS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, FORM: tl.constexpr):
    """Diagonals of two square tiles of float32, of which the second goes on along an axis where the first ends.

    found[a, b] = [first, second][a, y] along axis 1, [first, second][y, b] along axis 0, where
    y = ROWS a + COLUMNS b, plus the size of the tiles if a sign is negative. Signs are 1 or -1, not both -1.
    """
    if FORM.nvidia and FORM.rows >= 32:
        found = gathered(first, second, AXIS, ROWS, COLUMNS)
    else:
        found = rotated(first, second, AXIS, ROWS, COLUMNS)
    return found


@kernel
def gathered(first, second, AXIS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """What `skewed` returns, gathered from a vector."""
    SIZE: tl.constexpr = first.shape[0]
    GROUPS: tl.constexpr = SIZE // 8
    # groups of rows, row, groups of columns, pair of columns, column, tile
    both = tl.join(
        tl.reshape(first, [GROUPS, 8, GROUPS, 4, 2]),
        tl.reshape(second, [GROUPS, 8, GROUPS, 4, 2]),
    )
    # row and pair, by which the lanes of a warp differ, last
    both = tl.permute(both, [0, 5, 2, 4, 1, 3] if AXIS == 1 else [5, 0, 2, 4, 1, 3])
    # plus zero: where places depend on a tile, Triton gives them the layout of that tile
    zero = (first.to(tl.uint32, bitcast=True) & 1) >> 1
    place = tl.reshape(places(GROUPS, AXIS, ROWS, COLUMNS), [SIZE, SIZE]) + zero.to(tl.int32)
    found = tl.gather(tl.reshape(both, [2 * SIZE * SIZE]), tl.reshape(place, [SIZE * SIZE]), 0)
    return tl.reshape(found, [SIZE, SIZE])


@kernel
def places(GROUPS: tl.constexpr, AXIS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Where `gathered` finds the number of row a = 8 n + r and column b = 8 m + c: by n, r, m and c."""
    NEGATIVE: tl.constexpr = ROWS < 0 or COLUMNS < 0
    n = tl.arange(0, GROUPS)[:, None, None, None]
    r = tl.arange(0, 8)[None, :, None, None]
    m = tl.arange(0, GROUPS)[None, None, :, None]
    c = tl.arange(0, 8)[None, None, None, :]
    # y = 8 (ROWS n + COLUMNS m + group) + within
    y = ROWS * r + COLUMNS * c + (8 if NEGATIVE else 0)
    group, within = y // 8 + (GROUPS - 1 if NEGATIVE else 0), y % 8
    # m last: by it the registers of a thread differ, so it is a constant in the instruction that loads
    if AXIS == 1:
        place = (n * (2 * GROUPS + ROWS) + group) * 64 + (within % 2 * 32 + r * 4 + within // 2)
        place += m * (64 * COLUMNS)
    else:
        place = (n * ROWS + group) * (64 * GROUPS) + (c % 2 * 32 + within * 4 + c // 2)
        place += m * (64 * GROUPS * COLUMNS + 64)
    return place


@kernel
def rotated(first, second, AXIS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """What `skewed` returns, by a rotation of each row or column of one of the tiles at each place."""
    SIZE: tl.constexpr = first.shape[0]
    a = tl.arange(0, SIZE)[:, None]
    b = tl.arange(0, SIZE)[None, :]
    # place x along the axis of what is rotated, by the sign of its index z
    if AXIS == 1:
        z, x = a, b
    else:
        z, x = b, a
    if ROWS > 0 and COLUMNS > 0:
        after = x < z
    elif (ROWS if AXIS == 1 else COLUMNS) < 0:
        after = x + z < SIZE
    else:
        after = x <= z
    return tl.gather(tl.where(after, second, first), (ROWS * a + COLUMNS * b) & (SIZE - 1), AXIS)
