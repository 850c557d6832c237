"""Attention with a vector for each offset by the Triton kernels: forward, backward, and the vectors' gradients."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinate.ops.triton.attention import ROWS, Kept, Prepared, Problem, padded, prepare, sinks_gradient
from ordinate.ops.triton.bands import Band, Vectors
from ordinate.ops.triton.kernel import contiguous_channels, launch, matrix
from ordinate.ops.triton.outputs import empty_gradients, empty_outputs
from ordinate.ops.triton.rows import find_delta
from ordinate.ops.triton.tiles import Tile, device_class
from ordinate.ops.triton.vector_backward import vector_backward_keys
from ordinate.ops.triton.vector_ends import End, Ends, find_key_numbers, find_query_numbers
from ordinate.ops.triton.vector_forward import vector_forward
from ordinate.ops.triton.vector_queries import SHARES, vector_backward_queries
from ordinate.ops.triton.vector_sums import ASKED, CARRIED, HELD, join, sum_vectors
from ordinate.ops.triton.vector_tiles import VectorTiles, vector_tiles

# programs of the gradients of vectors that keep a large device busy; fixed, so that all devices sum in one order
PROGRAMS = 512
# wider than any text
WIDEST = 2**30
# of a thread, of 256 threads
MAX_REGISTERS = 248


class VectorProblem(NamedTuple):
    """One attention computation with vectors by memory offset (heads or 1, entries, channels), float32, or None.

    Args:
        base: the problem without them; its table has an entry for each of theirs, and no slopes; `far` says whether
            pairs lie beyond the ends of table and vectors.
        asked: vectors multiplied with queries.
        held: vectors multiplied with keys; a single one is that of all offsets.
        carried: vectors added to values.
    """

    base: Problem
    asked: Tensor | None
    held: Tensor | None
    carried: Tensor | None

    @property
    def lone(self) -> bool:
        """Whether all offsets share the vector that is multiplied with keys."""
        return self.held is not None and self.held.shape[1] == 1

    @property
    def entries(self) -> int:
        """Number of entries of vectors and table."""
        return max(
            x.shape[-2] for x in (self.asked, self.held, self.carried, _column(self.base.table)) if x is not None
        )


class VectorGradients(NamedTuple):
    """Gradients of a problem's inputs; None where there is no such input, or where none is needed."""

    q: Tensor
    k: Tensor
    v: Tensor
    table: Tensor | None
    sinks: Tensor | None
    asked: Tensor | None
    held: Tensor | None
    carried: Tensor | None


class Learned(NamedTuple):
    """Which of the inputs beside queries, keys, values and sinks need a gradient."""

    table: bool
    asked: bool
    held: bool
    carried: bool


class _Ready(NamedTuple):
    given: VectorProblem
    base: Prepared
    tiles: VectorTiles
    vectors: Vectors

    def form(self, tile: Tile, learned: bool = False) -> Any:
        """Return what a kernel is compiled for."""
        # with products of TF32 the tiles of float32 would be others, which have not been timed
        return self.base.form(tile, learned)._replace(products="ieee")

    def register_options(self, tile: Tile) -> dict[str, int]:
        """Return the options of a kernel that in float32 needs more registers than ptxas gives it unasked.

        Told no number, ptxas prefers two programs on a multiprocessor and a spilled register.
        """
        return tile.options | ({"maxnreg": MAX_REGISTERS} if self.given.base.q.dtype == torch.float32 else {})


def _ready(given: VectorProblem, kept: Kept | None = None) -> _Ready:
    given = _masked(given)
    base = prepare(given.base, kept)
    q, v = base.problem.q, base.problem.v
    channels = max(padded(q.shape[3]), padded(v.shape[3]))
    found = vector_tiles(device_class(q.device), q.dtype, channels, given.base.window)
    base = base._replace(bias=base.bias._replace(last=given.entries - 1))
    asked, held, carried = (
        band(x, q.dtype) for x in (given.asked, None if given.lone else given.held, given.carried)
    )
    vectors = Vectors(asked, held, carried, band(given.held, torch.float32) if given.lone else None)
    return _Ready(given, base, found, vectors)


def _masked(given: VectorProblem) -> VectorProblem:
    """Give a problem a window that hides nothing, with which all tiles have masks, where one may need them.

    Where queries do not end with the last key, a last tile that is not full may lie beyond the ends of the vectors.
    """
    base = given.base
    if base.window or not base.far or base.start + base.q.shape[2] == base.k.shape[2]:
        return given
    return given._replace(base=base._replace(window=WIDEST))


def band(x: Tensor | None, dtype: torch.dtype) -> Band | None:
    """Return vectors as a kernel takes them: rounded to the dtype of their products, as autocast rounds weights."""
    return None if x is None else Band(x.to(dtype).contiguous(), 0 if len(x) == 1 else x.shape[1] * x.shape[2])


def _column(x: Tensor | None) -> Tensor | None:
    return None if x is None else x[..., None]


def _ends(ready: _Ready) -> Ends:
    """Return the numbers of the keys for tiles between and beyond the ends."""
    vectors, far = ready.vectors, ready.given.base.far
    between = None if vectors.lone is None else _key_numbers(ready, vectors.lone, 0)
    ends = []
    for entry in (0, ready.base.bias.last):
        # under a causal mask nothing lies ahead
        read = far and vectors.held is not None and not (entry and ready.given.base.causal)
        ends.append(End(entry, _key_numbers(ready, vectors.held, entry) if read else between, None, None))
    return Ends(between, *ends)


def _key_numbers(ready: _Ready, band: Any, entry: int) -> Tensor:
    k, (batch, heads) = ready.base.problem.k, ready.given.base.q.shape[:2]
    numbers = k.new_empty(batch, heads, k.shape[2], dtype=torch.float32)
    arguments = matrix(k), band, entry, numbers, ready.base.where, ready.form(ROWS)
    launch(find_key_numbers, (-(-k.shape[2] // ROWS.rows), batch * heads), arguments, ROWS.options)
    return numbers


def _with_queries(ready: _Ready, tensors: Any, softmax: tuple[Tensor, Tensor], ends: Ends) -> Ends:
    """Return the ends with the numbers of the queries, where there are pairs beyond them."""
    if not ready.given.base.far:
        return ends
    q, _, _, gradient = tensors
    grid = -(-ready.given.base.q.shape[2] // ROWS.rows), ready.base.grid[0]
    made = []
    for end in ends[1:2] if ready.given.base.causal else ends[1:]:
        made.append(end._replace(norm=torch.empty_like(softmax[0]), delta=torch.empty_like(softmax[1])))
        arguments = q, gradient, softmax, made[-1], (ready.base.bias, ready.vectors), ready.base.where
        launch(find_query_numbers, grid, (*arguments, ready.form(ROWS)), ROWS.options)
    return Ends(ends.between, *made, *ends[1 + len(made) :])


def forward(given: VectorProblem) -> tuple[Tensor, ...]:
    """Return what `ordinate.ops.triton.attention.forward` does."""
    ready = _ready(given)
    q, k, v = ready.base.problem[:3]
    out, lse = empty_outputs(q, v)
    tile = ready.tiles.forward
    grid = -(-q.shape[2] // tile.rows), ready.base.grid[0]
    arguments = (matrix(q), matrix(k), matrix(v)), matrix(out), lse, ready.base.bias, ready.vectors, _ends(ready)
    launch(vector_forward, grid, (*arguments, ready.base.structure(tile), ready.form(tile)), tile.options)
    return out, lse, *(ready.base.kept or ())


def backward(gradient: Tensor, given: VectorProblem, results: Sequence[Tensor], learned: Learned) -> VectorGradients:
    """Return the gradients; weights are computed again from the log-sum-exp.

    Args:
        gradient: of the output.
        given: the problem.
        results: as `forward` returns them.
        learned: which of the inputs beside queries, keys and values need a gradient.
    """
    out, lse, *kept = results
    ready = _ready(given, Kept(*kept))
    gradient = contiguous_channels(gradient)
    q, k, v = ready.base.problem[:3]
    delta = torch.empty_like(lse)
    grid = -(-q.shape[2] // ROWS.rows), ready.base.grid[0]
    arguments = matrix(out), matrix(gradient), lse, delta, q.shape[1], q.shape[2], ready.form(ROWS)
    launch(find_delta, grid, arguments, ROWS.options)
    tensors, softmax = tuple(matrix(x) for x in (q, k, v, gradient)), (lse, delta)
    dk, dv = empty_gradients(given.base.k, given.base.v)
    tile = ready.tiles.keys
    grid = -(-k.shape[2] // tile.columns), ready.base.grid[1]
    ends = _with_queries(ready, tensors, softmax, _ends(ready))
    arguments = tensors, softmax, (matrix(dk), matrix(dv)), ready.base.bias, ready.vectors, ends
    where = ready.base.structure(tile, of_keys=True)
    launch(vector_backward_keys, grid, (*arguments, where, ready.form(tile)), ready.register_options(tile))
    dq, shares = _backward_queries(ready, tensors, softmax, ends, learned)
    table, *made = _sums(ready, tensors, softmax, ends, learned, shares)
    shared = (_of_shared(x, like) for x, like in zip(made, given[1:], strict=True))
    return VectorGradients(dq, dk, dv, table, sinks_gradient(given.base.sinks, lse, delta), *shared)


def _backward_queries(
    ready: _Ready, tensors: Any, softmax: tuple[Tensor, Tensor], ends: Ends, learned: Learned
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the queries, and sums for vectors that many pairs have: (`SHARES`, heads, channels)."""
    given, tile = ready.given, ready.tiles.queries
    batch, heads, queries, width = given.base.q.shape
    (dq,) = empty_gradients(given.base.q)
    grid = -(-queries // tile.rows), batch * heads
    summed = any(learned) and (given.base.far or given.lone)
    shape = batch, heads, grid[0] if summed else 0, SHARES.value, max(width, given.base.v.shape[3])
    shares = dq.new_empty(shape, dtype=torch.float32)
    arguments = tensors, softmax, (matrix(dq), shares), ready.base.bias, ready.vectors, ends
    options = ready.base.structure(tile), ready.form(tile, summed)
    launch(vector_backward_queries, grid, (*arguments, *options), tile.options)
    return dq, shares.sum((0, 2)).transpose(0, 1)


def _sums(
    ready: _Ready, tensors: Any, softmax: tuple[Tensor, Tensor], ends: Ends, learned: Learned, shares: Tensor
) -> list[Tensor | None]:
    """Return the gradients of the table and of the vectors; those of the table come with the first of the vectors."""
    found: list[Tensor | None] = [None] * 4
    pending = learned.table and ready.given.base.table is not None
    for term, wanted, vectors in zip((ASKED, HELD, CARRIED), learned[1:], ready.vectors[:3], strict=True):
        if vectors is None or not (wanted or pending):
            continue
        made, numbers = _summed(ready, tensors, softmax, ends, term.value, pending)
        # the ends belong to all that lies beyond, too; under a causal mask nothing lies ahead
        for end in range(0 if not ready.given.base.far else 1 if ready.given.base.causal else 2):
            made[:, -end] += shares[4 * end + term.value, :, : made.shape[2]]
            if numbers is not None:
                numbers[:, -end] += shares[4 * end + 3, :, 0]
        if wanted:
            found[1 + term.value] = made
        if pending:
            found[0], pending = numbers, False
    if ready.given.lone and learned.held:
        found[2] = shares[8, :, None, : ready.given.base.q.shape[3]].contiguous()
    return found


def _summed(
    ready: _Ready, tensors: Any, softmax: tuple[Tensor, Tensor], ends: Ends, term: int, learned: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the vectors of one term, and of the table if it is learned."""
    given, tile, bias = ready.given.base, ready.tiles.sums, ready.base.bias
    batch, heads = given.q.shape[:2]
    width = given.v.shape[3] if term == CARRIED.value else given.q.shape[3]
    lowest, highest = summed_distances(given, tile.rows, bias.last)
    distances = highest - lowest + 1
    count = batch * min(-(-given.q.shape[2] // tile.rows), -(-given.k.shape[2] // tile.rows))
    chunks = max(1, min(count, PROGRAMS // (heads * distances)))
    shape = heads, chunks, distances, 2, tile.rows
    sums = given.q.new_empty(*shape, width, dtype=torch.float32)
    numbers = sums.new_empty(*shape, 1) if learned else sums.new_empty(0)
    cut = lowest, batch, chunks
    arguments = tensors, softmax, (sums, numbers), (bias, ready.vectors, ends.between), ready.base.where, cut
    grid = distances, heads, chunks
    launch(sum_vectors, grid, (*arguments, term, ready.form(tile, learned)), ready.register_options(tile))
    made = join(sums, lowest, bias.origin, ready.given.entries)
    return made, join(numbers, lowest, bias.origin, ready.given.entries)[..., 0] if learned else None


def summed_distances(given: Problem, size: int, last: int) -> tuple[int, int]:
    """Return the least and the greatest distance of tiles whose pairs are summed: keys minus queries, from index 0.

    Those of visible pairs, and where vectors end before the farthest pair those that are not wholly beyond an end.
    """
    low, high = 1 - given.q.shape[2], given.k.shape[2] - 1
    if given.causal:
        high = min(high, given.start)
    if given.window:
        low = max(low, given.start - given.window + 1)
        high = min(high, given.start + given.window - 1)
    if given.far:
        # under a causal mask no pair lies beyond the last entry, and tiles that have it alone are summed here
        low, high = max(low, 1 - given.origin), high if given.causal else min(high, last - 1 - given.origin)
    return low // size, max(-(-high // size), low // size)


def _of_shared(gradient: Tensor | None, like: Tensor | None) -> Tensor | None:
    """Sum the gradients of all heads where they share the vectors."""
    if gradient is None or like is None:
        return None
    return gradient.sum(0, keepdim=True) if len(like) == 1 else gradient
