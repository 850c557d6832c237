# pyrefly: ignore-errors
"""Decoding by Triton: a few queries against a long cache of keys, which is split among programs.

A program computes the softmax of its queries over one chunk C of the keys, and its log-sum-exp:

    lse_C = log sum over j of C of exp(s_j)        o_C = sum over j of C of exp(s_j - lse_C) v_j

with the scores s_j of the forward kernel: soft cap, bias, masks. A second kernel joins the chunks, in their order,
with the sink t, if there is one:

    lse = log(exp(t) + sum over C of exp(lse_C))   o = sum over C of exp(lse_C - lse) o_C

A chunk has a fixed number of keys and begins at a multiple of it, so the sums of a query have one order: it depends
neither on the device, nor on other queries and sequences. The rows of a product are the queries of all heads that
share a key head, so that keys and values are read once for them; whether they are finite is seen on the way.
Source: Dao et al. 2023, Flash-Decoding for long-context inference, https://pytorch.org/blog/flash-decoding/.
"""

import triton.language as tl
from torch import Tensor

from ordinate.ops.triton.attention import Problem, describe
from ordinate.ops.triton.kernel import kernel, launch, matrix
from ordinate.ops.triton.outputs import empty_outputs
from ordinate.ops.triton.scores import (
    INFINITY,
    LOG2E,
    base,
    load_documents,
    load_tile,
    score_tile,
    visible_tile,
)
from ordinate.ops.triton.tiles import CHUNK_TILES

# chunks that are joined at a time
JOINED = tl.constexpr(16)
TILES_OF_CHUNK = tl.constexpr(CHUNK_TILES)


@kernel
def attend_chunk(given, parts, first, bias, where, FORM: tl.constexpr):
    """Outputs of a tile of query rows over one chunk of the keys, and their log-sum-exp in units of log2.

    `given` are queries, keys and values, `parts` the outputs (rows of all queries, chunks, channels) and the
    log-sum-exp (rows, chunks) to write, and `first` is the first chunk that is computed.
    """
    ROWS: tl.constexpr = FORM.rows
    q, k, v = given
    batch, key_head = tl.program_id(1) // where.key_heads, tl.program_id(1) % where.key_heads
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    i = row // FORM.groups
    head = tl.where(i < where.queries, key_head * FORM.groups + row % FORM.groups, 0)
    queries = load_rows(base(q, batch, head), q.row, i, where, FORM)
    asks = load_documents(where.q_document, where, batch, i, where.queries, FORM)
    held = base(k, batch, key_head), k.row, base(v, batch, key_head), v.row, batch
    made, top, total = add_chunk((queries, i, asks), held, first + tl.program_id(0), (bias, where, head), FORM)
    made = made / tl.where(total == 0.0, 1.0, total)[:, None]
    outputs, norms = parts
    place = ((batch * where.heads + head) * where.queries + i).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    channel = tl.arange(0, FORM.padded_depth)
    real = i < where.queries
    tl.store(
        outputs + place[:, None] * FORM.depth + channel[None, :],
        made,
        mask=real[:, None] & (channel < FORM.depth)[None, :],
    )
    tl.store(norms + place, top + tl.log2(total), mask=real)


@kernel
def load_rows(start, stride, i, where, FORM: tl.constexpr):
    """Load query rows of several heads, each from the address of its head; NaN or infinity make all of a row NaN."""
    channel = tl.arange(0, FORM.padded_width)
    place = start[:, None] + i.to(tl.int64)[:, None] * stride + channel[None, :]
    x = tl.load(place, mask=(i < where.queries)[:, None] & (channel < FORM.width)[None, :], other=0.0)
    x = x.to(tl.float32) if FORM.upcast else x
    return x + tl.sum(x.to(tl.float32) * 0.0, 1)[:, None].to(x.dtype)


@kernel
def add_chunk(rows, held, chunk, inputs, FORM: tl.constexpr):
    """Weighted values of one chunk of the keys, the highest score and the sum of weights of each query row."""
    ROWS: tl.constexpr = FORM.rows
    COLUMNS: tl.constexpr = FORM.columns
    DEPTH: tl.constexpr = FORM.padded_depth
    queries, i, asks = rows
    keys_base, keys_row, values_base, values_row, batch = held
    _bias, where, head = inputs
    made = tl.zeros([ROWS, DEPTH], tl.float32)
    top = tl.full([ROWS], -INFINITY, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    begin = chunk * (COLUMNS * TILES_OF_CHUNK)
    count = tl.minimum(tl.cdiv(where.keys - begin, COLUMNS), TILES_OF_CHUNK)
    for step in tl.range(0, count):
        tile = begin + step * COLUMNS
        j = tile + tl.arange(0, COLUMNS)
        exists = j < where.keys
        keys = load_tile(keys_base, keys_row, tile, exists, FORM, COLUMNS, False, True)
        values = load_tile(values_base, values_row, tile, exists, FORM, COLUMNS, True, True)
        damage = tl.sum(values.to(tl.float32) * 0.0, 1)
        poison = tl.sum(keys.to(tl.float32) * 0.0, 1) + damage
        # a weight of zero would not hide NaN; keys touch no column but their own
        values = tl.where((damage == 0.0)[:, None], values, 0.0).to(values.dtype)
        products = tl.dot(queries, tl.trans(keys), input_precision=FORM.products)
        shared = _bias, where, head[:, None]
        score, _ = score_tile(products, i[:, None], j[None, :], None, shared, poison[None, :], FORM, FORM.biased)
        holds = load_documents(where.k_document, where, batch, j, where.keys, FORM)
        seen = visible_tile(i[:, None], j[None, :], asks[:, None], holds[None, :], where, FORM)
        score = tl.where(seen, score, -INFINITY)
        higher = tl.maximum(top, tl.max(score, 1))
        # a row without any visible key so far has no finite pivot
        pivot = tl.where(higher == -INFINITY, 0.0, higher)
        weights = tl.exp2(score - pivot[:, None])
        shrunk = tl.exp2(top - pivot)
        total = total * shrunk + tl.sum(weights, 1)
        made = tl.dot(weights.to(values.dtype), values, made * shrunk[:, None], input_precision=FORM.products)
        top = higher
    return made, top, total


@kernel
def join_chunks(parts, out, lse, sinks, sizes, FORM: tl.constexpr):
    """Output and log-sum-exp of one query from those of its chunks, and its sink."""
    DEPTH: tl.constexpr = FORM.padded_depth
    outputs, norms = parts
    heads, queries, chunks = sizes
    row = tl.program_id(0)
    batch, head, i = row // (queries * heads), row // queries % heads, row % queries
    channel = tl.arange(0, FORM.padded_depth)
    made = tl.zeros([DEPTH], tl.float32)
    top = tl.full([1], -INFINITY, tl.float32)
    total = tl.zeros([1], tl.float32)
    if FORM.sunk:
        top = tl.zeros([1], tl.float32) + tl.load(sinks + head) * LOG2E
        total += 1.0
    for step in tl.range(0, tl.cdiv(chunks, JOINED)):
        chunk = step * JOINED + tl.arange(0, JOINED)
        place = row.to(tl.int64) * chunks + chunk
        norm = tl.load(norms + place, mask=chunk < chunks, other=-INFINITY)
        real = (chunk < chunks)[:, None] & (channel < FORM.depth)[None, :]
        part = tl.load(outputs + place[:, None] * FORM.depth + channel[None, :], mask=real, other=0.0)
        higher = tl.maximum(top, tl.max(norm, 0))
        pivot = tl.where(higher == -INFINITY, 0.0, higher)
        weights = tl.exp2(norm - pivot)
        shrunk = tl.exp2(top - pivot)
        total = total * shrunk + tl.sum(weights, 0)
        made = made * shrunk + tl.sum(weights[:, None] * part, 0)
        top = higher
    made = made / tl.where(total == 0.0, 1.0, total)
    tl.store(base(out, batch, head) + i.to(tl.int64) * out.row + channel, made, mask=channel < FORM.depth)
    tl.store(lse + row + tl.arange(0, 1), top + tl.log2(total))


def decode(given: Problem) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp as `ordinate.ops.triton.attention.forward` does, from chunks of the keys."""
    ready = describe(given)
    q, k, v = ready.problem[:3]
    out, lse = empty_outputs(q, v)
    tile, rows = ready.tiles.decoding, q.shape[2] * ready.form(ready.tiles.decoding).groups
    form = ready.form(tile)
    chunks = visible_chunks(ready.problem, tile.chunk)
    parts = (
        q.new_empty(lse.numel(), len(chunks), v.shape[3], dtype=lse.dtype),
        lse.new_empty(lse.numel(), len(chunks)),
    )
    grid = len(chunks), ready.grid[1], -(-rows // tile.rows)
    arguments = (matrix(q), matrix(k), matrix(v)), parts, chunks.start, ready.bias, ready.where, form
    launch(attend_chunk, grid, arguments, tile.options)
    sizes = q.shape[1], q.shape[2], len(chunks)
    launch(join_chunks, (lse.numel(),), (parts, matrix(out), lse, given.sinks, sizes, form), tile.options)
    return out, lse


def visible_chunks(given: Problem, size: int) -> range:
    """Return the chunks of so many keys that causal mask and window leave; at least one."""
    queries, keys = given.q.shape[2], given.k.shape[2]
    low, high = 0, keys
    if given.causal:
        high = min(high, given.start + queries)
    if given.window:
        low = max(low, given.start - given.window + 1)
        high = min(high, given.start + queries - 1 + given.window)
    first = min(low, keys - 1) // size
    return range(first, max(-(-high // size), first + 1))
