"""Linear attention with decay by the Triton kernels, in chunks: forward and backward."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinate.ops.triton.chunk_gradients import chunk_gradients
from ordinate.ops.triton.chunk_states import pair_products, read_states, scan_states
from ordinate.ops.triton.kernel import Strided, launch
from ordinate.ops.triton.scan_outputs import CHUNK, empty_states
from ordinate.ops.triton.tiles import device_class


class Block(NamedTuple):
    """Configuration of a kernel.

    Args:
        rows: most channels of keys at a time, a power of two.
        columns: most channels of values at a time, a power of two.
        warps: of 32 threads, on AMD's GPUs of 64.
    """

    rows: int
    columns: int
    warps: int

    @property
    def options(self) -> dict[str, int]:
        """Return the options of a launch."""
        return {"num_warps": self.warps, "num_stages": 1}


# of a thread of the gradients without a bonus: told no number, ptxas spills some on an A100
MAX_REGISTERS = 248
# least size of an operand of a product
SMALLEST = 16
# larger blocks spill registers: products of float32 hold whole rows and columns of their operands
SCAN, PAIRS, READ, GRADIENTS = Block(64, 64, 4), Block(64, 64, 4), Block(64, 32, 4), Block(32, 32, 8)
# by compilation for AMD's MI300: with 8 warps there are too few registers for each thread
GRADIENTS_OF_AMD = GRADIENTS._replace(warps=4)


class Form(NamedTuple):
    """Constants of a compiled kernel.

    Args:
        chunk: tokens of a chunk, a power of two.
        levels: halvings of a chunk.
        width: channels of keys.
        depth: channels of values.
        rows: channels of keys of a program, a power of two.
        columns: channels of values of a program, a power of two.
        shared: whether all channels of a head have the same decay.
        before: tokens are read before they are stored, and have a bonus.
        back: the backward pass.
    """

    chunk: Any
    levels: Any
    width: Any
    depth: Any
    rows: Any
    columns: Any
    shared: Any
    before: Any
    back: Any


class Problem(NamedTuple):
    """Inputs in float32, with any strides.

    Args:
        q: queries (batch, groups, tokens, width).
        k: keys, in as many groups.
        v: values (batch, heads, tokens, depth).
        w: log decays (batch, heads, tokens, width), or 1 in place of the width.
        bonus: (heads, width); None: tokens are read after they are stored.
        start: the first state (batch, heads, width, depth).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    w: Tensor
    bonus: Tensor | None
    start: Tensor

    def form(self, block: Block, back: bool) -> Form:
        """Return what a kernel is compiled for."""
        width, depth = self.q.shape[3], self.v.shape[3]
        rows, columns = _block(width, block.rows), _block(depth, block.columns)
        before = self.bonus is not None
        return Form(CHUNK, CHUNK.bit_length() - 1, width, depth, rows, columns, self.shared, before, back)

    @property
    def shared(self) -> bool:
        """Whether all channels of a head have one decay; with a bonus each has its own, which may be the same."""
        return self.w.shape[3] == 1 and self.bonus is None

    @property
    def logs(self) -> Strided:
        """Return the log decays as the kernels take them."""
        return _strided(self.w if self.shared else self.w.expand(-1, -1, -1, self.q.shape[3]))

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Return heads, heads of a group, tokens and chunks."""
        heads, tokens = self.v.shape[1:3]
        return heads, heads // self.q.shape[1], tokens, -(-tokens // CHUNK)


def forward(given: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the output, the last state, the state before each chunk, and the products of pairs."""
    q, k, v, _, bonus, start = given
    rows, chunks = v.shape[0] * v.shape[1], given.sizes[3]
    y, last, states, products = empty_states(v, start)
    row, column, logs = _strided(k), _strided(v), given.logs
    _scan((row, column, logs, _strided(start), _strided(states), _strided(last)), given, back=False)
    # without a bonus its address is not read
    arguments = _strided(q), row, logs, start if bonus is None else bonus.contiguous(), _strided(products)
    form = given.form(PAIRS, back=False)
    launch(pair_products, (rows * chunks,), (*arguments, given.sizes, form), PAIRS.options)
    _read((_strided(q), column, logs, _strided(states), _strided(products), _strided(y)), given, back=False)
    return y, last, states, products


def backward(
    gradients: tuple[Tensor, Tensor], given: Problem, states: Tensor, products: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor]:
    """Return the gradients of the inputs.

    Args:
        gradients: of output and last state.
        given: the inputs.
        states: by `forward`.
        products: by `forward`.
    """
    q, k, v, w, bonus, start = given
    rows, (_, groups, tokens, chunks) = v.shape[0] * v.shape[1], given.sizes
    row, column, logs, above = _strided(k), _strided(v), given.logs, _strided(gradients[0])
    after, dstart = torch.empty_like(states), torch.empty_like(start, memory_format=torch.contiguous_format)
    _scan((_strided(q), above, logs, _strided(gradients[1]), _strided(after), _strided(dstart)), given, back=True)
    dv = torch.empty_like(v, memory_format=torch.contiguous_format)
    _read((row, above, logs, _strided(after), _strided(products), _strided(dv)), given, back=True)
    block = GRADIENTS_OF_AMD if device_class(v.device) in ("cdna", "amd") else GRADIENTS
    form = given.form(block, back=True)
    dq, dk = (v.new_empty(*v.shape[:3], form.width) for _ in range(2))
    blocks = -(-form.width // form.rows)
    dw = v.new_empty(rows, blocks, tokens, 1) if form.shared else torch.empty_like(dq)
    dbonus = v.new_empty(rows if form.before else 0, chunks, form.width)
    made = _strided(dq), _strided(dk), _strided(dw), dbonus
    inputs, between = (_strided(q), row, column, above), (_strided(states), _strided(after))
    arguments = inputs, logs, dbonus if bonus is None else bonus.contiguous(), between, made, given.sizes, form
    limit = {} if form.before else {"maxnreg": MAX_REGISTERS}
    launch(chunk_gradients, (rows * chunks, blocks), arguments, block.options | limit)
    dq, dk = (x.unflatten(1, (-1, groups)).sum(2) if groups > 1 else x for x in (dq, dk))
    if form.shared:
        dw = dw.sum(1).view(*w.shape)
    elif w.shape[3] < form.width:
        dw = dw.sum(3, keepdim=True)
    return dq, dk, dv, dw, dbonus.view(*v.shape[:2], chunks, -1).sum((0, 2)) if form.before else None, dstart


def _block(size: int, most: int) -> int:
    """Return the largest power of two from 16 on that pads a size by at most half: for 80 channels 32."""
    block = most
    while block > SMALLEST and 2 * (-(-size // block) * block) > 3 * size:
        block //= 2
    return block


def _scan(tensors: tuple[Strided, ...], given: Problem, back: bool) -> None:
    form = given.form(SCAN, back)
    blocks = -(-form.width // form.rows), -(-form.depth // form.columns)
    grid = given.v.shape[0] * given.v.shape[1], *blocks
    launch(scan_states, grid, (*tensors, given.sizes, form), SCAN.options)


def _read(tensors: tuple[Strided, ...], given: Problem, back: bool) -> None:
    form = given.form(READ, back)
    grid = given.v.shape[0] * given.v.shape[1] * given.sizes[3], -(-form.depth // form.columns)
    launch(read_states, grid, (*tensors, given.sizes, form), READ.options)


def _strided(x: Tensor) -> Strided:
    return Strided(x, *x.stride())
