# pyrefly: ignore-errors
"""Gradient of a table of biases: the sums of the scores' gradients along diagonals, in a fixed order.

    dtable[x] = sum over all pairs (i, j) with j - i + origin = x of ds_ij

with ds_ij as in `backward`.

All tiles whose queries and keys are equally far apart have the same diagonals. A program adds the tiles of one such
distance, and sums the diagonals of the result once. The sums of programs are then added (`join`).
"""

import triton.language as tl
from torch import Tensor

from ordinate.ops.triton.backward import load_softmax
from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.scores import (
    base,
    bias_tile,
    load_documents,
    load_poison,
    load_tile,
    score_tile,
    visible_tile,
)


@kernel
def add_tiles(given, softmax, sums, bias, where, cut, FORM: tl.constexpr):
    """Sum of the gradients of all tiles of one distance, of a chunk of sequences and tiles.

    `sums` is (heads, chunks, 2, distances + 1, tile): the diagonals below the main one, then those from it on, which
    are those below of the next distance and begin one row later. `cut` is the first distance [tiles], and the numbers
    of sequences and of chunks.
    """
    SIZE: tl.constexpr = FORM.rows
    lowest, batches, chunks = cut
    # under a causal mask the last distance has the most tiles, and programs begin in the order of their numbers
    nth, head, chunk = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1), tl.program_id(2)
    apart = lowest + nth
    first = tl.maximum(0, -apart)
    count = tl.minimum(tl.cdiv(where.queries, SIZE), tl.cdiv(where.keys, SIZE) - apart) - first
    total = batches * tl.maximum(count, 0)
    share = tl.cdiv(total, chunks)
    inputs = bias, where, head
    added = tl.zeros([SIZE, SIZE], tl.float32)
    r, c = tl.arange(0, SIZE), tl.arange(0, SIZE)
    # the bias is the same for all these tiles
    biased = bias_tile(r[:, None], (c + apart * SIZE)[None, :], apart * SIZE + bias.origin, inputs, FORM)
    for place in tl.range(chunk * share, tl.minimum(total, (chunk + 1) * share)):
        tile = first + place % count
        begin = place // count, tile * SIZE, (tile + apart) * SIZE
        added += score_change(given, softmax, begin, inputs, biased, FORM)
    # column x of the turned tile has diagonal x of the rows above, and diagonal x - SIZE of those below
    turned = tl.gather(added, (r[:, None] + c[None, :]) % SIZE, 1)
    upper = r[:, None] + c[None, :] < SIZE
    distances = tl.num_programs(0)
    below = sums + (head * chunks + chunk).to(tl.int64) * (2 * (distances + 1) * SIZE) + c
    above, mine = below + (distances + 1) * SIZE, nth * SIZE
    tl.store(below + mine, tl.sum(tl.where(upper, 0.0, turned), 0))
    tl.store(above + mine + SIZE, tl.sum(tl.where(upper, turned, 0.0), 0))
    # rows that no distance has
    if nth == 0:
        tl.store(above, tl.zeros([SIZE], tl.float32))
    if nth == distances - 1:
        tl.store(below + distances * SIZE, tl.zeros([SIZE], tl.float32))


@kernel
def score_change(given, softmax, place, inputs, biased, FORM: tl.constexpr):
    """Gradient of the scores of a tile, before the soft cap; 0 at hidden pairs."""
    q, k, v, gradient = given
    SIZE: tl.constexpr = FORM.rows
    batch, query, key = place
    i, j = query + tl.arange(0, SIZE), key + tl.arange(0, SIZE)
    _bias, where, head = inputs
    key_head = head // FORM.groups
    poison = load_poison(where, batch, key_head, j, True)
    queries = load_tile(base(q, batch, head), q.row, query, i < where.queries, FORM, SIZE, False, True)
    keys = load_tile(base(k, batch, key_head), k.row, key, j < where.keys, FORM, SIZE, False, True)
    products = tl.dot(queries, tl.trans(keys), input_precision=FORM.products)
    shift = poison[None, :] + biased
    score, _ = score_tile(products, i[:, None], j[None, :], None, inputs, shift, FORM, False)
    upstream = load_tile(base(gradient, batch, head), gradient.row, query, i < where.queries, FORM, SIZE, True, True)
    values = load_tile(base(v, batch, key_head), v.row, key, j < where.keys, FORM, SIZE, True, True)
    slope = tl.dot(upstream, tl.trans(values), input_precision=FORM.products)
    norm, delta = load_softmax(softmax, batch, i, where, head, True)
    asks = load_documents(where.q_document, where, batch, i, where.queries, FORM)
    holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
    seen = visible_tile(i[:, None], j[None, :], asks[:, None], holds[None, :], where, FORM)
    return tl.where(seen, tl.exp2(score - norm[:, None]) * (slope - delta[:, None]), 0.0)


def join(sums: Tensor, lowest: int, origin: int, entries: int) -> Tensor:
    """Return the gradient of the table (heads, entries) from the sums of all programs.

    Args:
        sums: as `add_tiles` stores them.
        lowest: the first distance [tiles].
        origin: entry of the table whose offset is zero.
        entries: entries of the table.
    """
    first = -origin - (lowest - 1) * sums.shape[4]
    return sums.sum((1, 2)).flatten(1)[:, first : first + entries].contiguous()
