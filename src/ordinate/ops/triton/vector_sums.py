# pyrefly: ignore-errors
"""Gradients of vectors by offset, and of a table of biases beside them: sums along diagonals, in a fixed order.

    d asked[x] = sum of c_ij q_i      d held[x] = sum of c_ij k_j      d carried[x] = sum of weight(i, j) dO_i

over all pairs of offset x, with the gradients c_ij of the scores. All tiles whose queries and keys are equally far
apart have the same band of offsets (`ordinate.ops.triton.bands`), so a program adds the products of such tiles with
the two halves of their band. The sums of programs are then added (`join`). There are no atomic additions.
"""

import torch
import triton.language as tl
from torch import Tensor

from ordinate.ops.triton.bands import by_offset
from ordinate.ops.triton.kernel import kernel
from ordinate.ops.triton.vector_backward import load_keys, load_queries, pair_gradients

# terms whose vectors a kernel sums
ASKED, HELD, CARRIED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@kernel
def factors_of(TERM: tl.constexpr, queries, keys, upstream, change, weights):
    """Return what a term multiplies in its gradient, and the numbers of pairs by which it does."""
    if TERM == ASKED:
        factors, pairs = queries, change
    elif TERM == HELD:
        factors, pairs = keys, change
    else:
        factors, pairs = upstream, weights
    return factors, pairs


@kernel
def store_halves(sums, row, below, above, SIZE: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Store the sums of the lower and of the upper half of a band, from a row on."""
    x, channel = tl.arange(0, SIZE), tl.arange(0, PADDED)
    at = sums + row * WIDTH + (x[:, None] * WIDTH + channel[None, :])
    tl.store(at, below, mask=(channel < WIDTH)[None, :])
    tl.store(at + SIZE * WIDTH, above, mask=(channel < WIDTH)[None, :])


@kernel
def sum_vectors(given, softmax, made, added, where, cut, TERM: tl.constexpr, FORM: tl.constexpr):
    """Sums of one term over all tiles of one distance, of a chunk of sequences and tiles.

    `made` are the sums of the vectors (heads, chunks, distances, 2, tile, channels), those of the lower half of the
    band first, and if FORM.learned those of the table, without channels. `added` are bias, vectors and the numbers of
    the keys (`Ends.between`). `cut` is the first distance [tiles], and the numbers of sequences and of chunks.
    """
    SIZE: tl.constexpr = FORM.rows
    BY_KEY: tl.constexpr = TERM == HELD
    WIDTH: tl.constexpr = FORM.depth if TERM == CARRIED else FORM.width
    PADDED: tl.constexpr = FORM.padded_depth if TERM == CARRIED else FORM.padded_width
    q, k, v, gradient = given
    sums, numbers = made
    bias, vectors, of_keys = added
    lowest, batches, chunks = cut
    # under a causal mask the last distance has the most tiles, and programs begin in the order of their numbers
    nth, head, chunk = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1), tl.program_id(2)
    apart = lowest + nth
    tile = tl.maximum(0, -apart)
    count = tl.minimum(tl.cdiv(where.queries, SIZE), tl.cdiv(where.keys, SIZE) - apart) - tile
    total = batches * tl.maximum(count, 0)
    share = tl.cdiv(total, chunks)
    inputs, entry = (bias, vectors, where, head), apart * SIZE + bias.origin
    above, below = tl.zeros([SIZE, PADDED], tl.float32), tl.zeros([SIZE, PADDED], tl.float32)
    over, under = tl.zeros([SIZE], tl.float32), tl.zeros([SIZE], tl.float32)
    for place in tl.range(chunk * share, tl.minimum(total, (chunk + 1) * share)):
        batch, begin = place // count, (tile + place % count) * SIZE
        queries, upstream, rows = load_queries(q, gradient, softmax, batch, head, begin, where, FORM)
        keys, values, columns = load_keys(k, v, of_keys, batch, head, begin + apart * SIZE, where, FORM)
        tokens = queries, keys, upstream, values
        # the other way round the offsets of the pairs would not come to lie in rows
        weights, change, _ = pair_gradients(tokens, rows, columns, entry, inputs, FORM, not BY_KEY)
        factors, pairs = factors_of(TERM, queries, keys, upstream, change, weights)
        upper, lower = by_offset(pairs, FORM, BY_KEY, not BY_KEY)
        above = tl.dot(upper.to(factors.dtype), factors, above, input_precision=FORM.products)
        below = tl.dot(lower.to(factors.dtype), factors, below, input_precision=FORM.products)
        if FORM.learned:
            # of the same numbers as above, the compiler does it once
            upper, lower = by_offset(change, FORM, BY_KEY, not BY_KEY)
            over += tl.sum(upper, 1)
            under += tl.sum(lower, 1)
    row = (((head * chunks + chunk) * tl.num_programs(0) + nth) * 2 * SIZE).to(tl.int64)
    store_halves(sums, row, below, above, SIZE, WIDTH, PADDED)
    if FORM.learned:
        store_halves(numbers, row, under[:, None], over[:, None], SIZE, 1, 1)


def join(sums: Tensor, lowest: int, origin: int, entries: int) -> Tensor:
    """Return the gradient by entry (heads, entries, channels) from the sums of all programs.

    Offsets beyond the ends belong to the entries at the ends.

    Args:
        sums: (heads, chunks, distances, 2, tile, channels).
        lowest: the first distance [tiles].
        origin: entry whose offset is zero.
        entries: number of entries.
    """
    # one chunk needs no copy
    below, above = (sums.sum(1) if sums.shape[1] > 1 else sums[:, 0]).unbind(2)
    nothing = torch.zeros_like(above[:, :1])
    joined = (torch.cat([nothing, above], 1) + torch.cat([below, nothing], 1)).flatten(1, 2)
    if entries == 1:
        return joined.sum(1, keepdim=True)
    # entry of the first sum
    first = (lowest - 1) * sums.shape[4] + origin
    made = joined.new_zeros(len(joined), entries, *joined.shape[2:])
    low, high = max(first, 0), min(first + joined.shape[1], entries)
    if low < high:
        made[:, low:high] = joined[:, low - first : high - first]
    if first < 0:
        made[:, 0] = joined[:, : 1 - first].sum(1)
    if first + joined.shape[1] > entries:
        made[:, -1] = joined[:, max(entries - 1 - first, 0) :].sum(1)
    return made
