"""Memory that a computation holds beyond inputs and output, counted on small parts of it and extended."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ordinate.attention._backend import AttentionCall
from ordinate.core.records import changed
from ordinate.ops.matmul import multiplies_tiles
from ordinate.schemes._held import rows_of

# query-key pairs of all heads up to which the whole is computed
WHOLE_PAIRS = 2**24
# of larger calls two parts are computed: at least these rows in the first, twice as many in the second, and so many
# pairs of a query and a key in all heads that a scheme makes its bias as it makes the whole one
SMALL, PART_PAIRS = 8, 2**16
FUSED_ON_CPU = "aten::_scaled_dot_product_flash_attention_for_cpu"


def row_workspace(call: AttentionCall, run: Callable[[AttentionCall], Tensor]) -> int:
    """Return what `run` holds at most beyond the call's inputs and its result [bytes].

    Up to 16 million query-key pairs `run` is called for all queries. For more it is called for n and 2 n queries only
    (n is 8, or more where there are few keys), and each of its allocations is extended along the line

        bytes(rows) = bytes(n) + (bytes(2 n) - bytes(n)) (rows - n) / n

    which is exact where all tensors are proportional to the queries or independent of them. So it counts whatever a
    scheme needs to make its bias, copies in a wider dtype, and what autograd keeps. First and last queries are both
    taken, and the larger result: beyond the training length a scheme may compute otherwise.

    Args:
        call: the call; its first and its last queries are computed.
        run: computes attention.
    """

    def of(first: int, count: int) -> Callable[[], Tensor]:
        block = slice(first, first + count)
        # laid out as the whole is: a slice would be copied where the whole is not
        part = changed(call, q=call.q[:, :, block].clone(), at=rows_of(call.at, block))
        return lambda: run(part)

    rows, keys = call.where.shape
    small = max(SMALL, -(-PART_PAIRS // max(1, keys * call.q.shape[1])))
    if call.num_pairs <= WHOLE_PAIRS:
        small = rows
    starts = {0, max(0, rows - 2 * small)}
    return max(workspace_along(partial(of, first), rows, (small, 2 * small), rows, call) for first in starts)


def run_workspace(run: Callable[[], Tensor], queries: int) -> int:
    """Return what `run` holds at most beyond its result, by running it [bytes].

    Args:
        run: computes attention, or a part that holds as much as the whole.
        queries: number of queries for the buffers of PyTorch's fused kernel.
    """
    return max(_timeline(run, queries))


def peak_and_rest(run: Callable[[], Any], queries: int) -> tuple[int, int]:
    """Return what is held at most while something is made, and what is left while the results are kept [bytes].

    Args:
        run: returns the results.
        queries: number of queries for the buffers of PyTorch's fused kernel.
    """
    with _Counter(queries) as counter:
        made = run()
        rest = counter.alive
    del made
    return max(counter.held), rest


def workspace_along(
    of: Callable[[int], Callable[[], Tensor]], size: int, small: tuple[int, int], queries: int, call: AttentionCall
) -> int:
    """Return what a computation of this size holds at most beyond its result, from two smaller ones [bytes].

    Args:
        of: returns the computation of a size.
        size: the size in question.
        small: sizes that are computed; up to the second, the size itself is.
        queries: number of queries for the buffers of PyTorch's fused kernel.
        call: whose random numbers are kept as they are.
    """
    devices = [call.q.device] if call.q.device.type == "cuda" else []
    with torch.random.fork_rng(devices, enabled=bool(call.dropout)):
        if size <= small[1]:
            return max(0, *_timeline(of(size), queries))
        first, second = (_timeline(of(count), queries) for count in small)
    if len(first) != len(second):
        # what is done on first use only, such as compiling kernels, is not of the computation
        first = _timeline(of(small[0]), queries)
    if len(first) != len(second):
        # another number of steps: the peaks are compared instead
        first, second = [max(first)], [max(second)]
    share = (size - small[0]) / (small[1] - small[0])
    return max(0, *(round(a + (b - a) * share) for a, b in zip(first, second, strict=True)))


def fused_kernel_bytes(queries: int, q: Sequence[int], k: Sequence[int], dtype: torch.dtype) -> int:
    """Return the buffers of PyTorch's fused kernel on a CPU: for each thread, scores and sums of one tile [bytes].

        4 threads (rows columns + 2 rows + rows width), and rows columns of 16 bits for 16-bit inputs

    A tile has 256 rows from 768 queries on, 64 from 192 on, else 32, and 512 columns. Where the processor multiplies
    tiles of bfloat16 (AMX), keys and values are copied for its instructions, too, if each copy is read often enough,
    and each thread has one tile of keys.

    Args:
        queries: number of queries.
        q: shape of the queries, of which there may be fewer than these.
        k: shape of the keys.
        dtype: their dtype.
    """
    rows = min(queries, 256 if queries >= 768 else 64 if queries >= 192 else 32)
    batch, heads, _, width = q
    keys, threads = k[2], torch.get_num_threads()
    columns, copied = min(keys, 512), 0
    if dtype == torch.bfloat16 and min(queries, keys) >= 64 and multiplies_tiles():
        tasks = -(-batch * heads * -(-queries // rows) // threads)
        if tasks * rows >= 4 * batch * k[1]:
            copied = dtype.itemsize * width * (2 * batch * k[1] * keys + threads * columns)
    tile = max(4, dtype.itemsize) * rows * (columns + 2 + width)
    return copied + threads * (tile + (dtype.itemsize * rows * columns if dtype.itemsize == 2 else 0))


def _copied_bytes(mask: Tensor | None) -> int:
    """Return the size of the copy that PyTorch's kernel for CPUs makes of a mask whose rows have gaps [bytes]."""
    return 0 if mask is None or mask.stride(-1) == 1 else mask.numel() * mask.element_size()


def _timeline(run: Callable[[], Tensor], queries: int) -> list[int]:
    """Return what is held after each operation, beyond the result [bytes]."""
    with _Counter(queries) as counter:
        out = run()
    result = out.numel() * out.element_size()
    return [now - result for now in counter.held]


class _Counter(TorchDispatchMode):
    """Notes after each operation how many bytes of new storages are alive.

    Args:
        queries: number of queries for the buffers of PyTorch's fused kernel.
    """

    def __init__(self, queries: int) -> None:
        super().__init__()
        self.queries = queries
        self.held: list[int] = [0]
        self._before: dict[int, StorageWeakRef] = {}
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, Tensor):
                storage = StorageWeakRef(x.untyped_storage())
                if storage.cdata not in self._made:
                    self._before.setdefault(storage.cdata, storage)
        out = func(*args, **kwargs)
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                storage = StorageWeakRef(x.untyped_storage())
                if storage.cdata not in self._before:
                    self._made[storage.cdata] = storage, x.untyped_storage().nbytes()
        inside = 0
        if func._schema.name == FUSED_ON_CPU:
            q, k = args[:2]
            inside = fused_kernel_bytes(self.queries, q.shape, k.shape, q.dtype)
            inside += _copied_bytes(kwargs.get("attn_mask"))
        self.held.append(self.alive + inside)
        return out

    @property
    def alive(self) -> int:
        """Bytes of the new storages that are alive."""
        self._made = {key: entry for key, entry in self._made.items() if not entry[0].expired()}
        return sum(size for _, size in self._made.values())
