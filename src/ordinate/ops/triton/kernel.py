"""Definition and launch of Triton kernels, and the tensors that they take."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ordinate.ops.triton.tiles import ALIGNED

# fused multiply-add is off by default from Triton 3.10 on
OPTIONS = {"enable_fp_fusion": True}
# offsets within a tile, of at most 128 tokens, have 32 bits
MAX_ROW = 2**31 // 256


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function by Triton when it is launched.

    Type checkers of tests wrap functions; Triton reads the source of the innermost.
    """
    return triton.jit(inspect.unwrap(function))


class Matrix(NamedTuple):
    """A tensor of (batch, heads, tokens, channels) as a kernel takes it; channels are contiguous.

    Args:
        data: the tensor, in a kernel its address.
        batch: stride of the batch [numbers].
        head: stride of the heads.
        row: stride of the tokens.
    """

    data: Any
    batch: Any
    head: Any
    row: Any


class Strided(NamedTuple):
    """A tensor of (batch, heads, tokens, channels) with any strides.

    Args:
        data: the tensor, in a kernel its address.
        batch: stride of the batch [numbers].
        head: stride of the heads.
        row: stride of the tokens.
        channel: stride of the channels.
    """

    data: Any
    batch: Any
    head: Any
    row: Any
    channel: Any


def matrix(x: Tensor) -> Matrix:
    """Describe a tensor that is laid out as `contiguous_channels` leaves it."""
    # the stride of an axis of one entry may be any number, and Triton compiles apart for some
    return Matrix(x, *(0 if size == 1 else stride for size, stride in zip(x.shape[:3], x.stride(), strict=False)))


def shared(x: Tensor) -> Strided:
    """Describe a tensor that all sequences, or all heads, have in common if it has only one of them."""
    (batch, heads, _, _), (of_batch, of_head, row, channel) = x.shape, x.stride()
    return Strided(x, of_batch if batch > 1 else 0, of_head if heads > 1 else 0, row, channel)


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is at least as large."""
    # triton.next_power_of_2 takes as long as half of a launch
    return 1 << max(0, size - 1).bit_length()


@kernel
def address(x, batch, head, i):
    """Address of the first channel of each token of a head."""
    start = x.data + batch.to(tl.int64) * x.batch + tl.cast(head, tl.int64) * x.head
    return start + i.to(tl.int64)[:, None] * x.row


def contiguous_channels(x: Tensor) -> Tensor:
    """Return the tensor itself if the kernels read it as they read a contiguous one, else a contiguous copy.

    Its channels must be contiguous, its address [bytes] a multiple of 16, and its tokens so near to each other that
    offsets within a tile have 32 bits. The largest power of two up to 16 that divides the number of channels must
    divide all strides [numbers], as it does those of a contiguous tensor: for others Triton compiles other code,
    which no proof has seen, and which loads one number at a time. PyTorch's fused kernels, called by name, load 8
    numbers of 16 bits at a time, from addresses that must be multiples of 16 bytes.
    """
    strides = [stride for size, stride in zip(x.shape[:3], x.stride(), strict=False) if size > 1]
    fits = x.data_ptr() % ALIGNED == 0 and ((x.stride(3) == 1 and x.stride(2) <= MAX_ROW) or x.is_contiguous())
    step = math.gcd(x.shape[3], ALIGNED)
    fits = fits and not any(stride % step for stride in strides)
    return x if fits else x.clone(memory_format=torch.contiguous_format)


def for_amd(options: Mapping[str, int]) -> dict[str, int]:
    """Return the options that AMD's compiler takes."""
    return {name: value for name, value in options.items() if name != "maxnreg"}


def launch(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: Mapping[str, int]) -> None:
    """Launch a kernel on a grid of programs, on the device of its tensors.

    Args:
        function: the kernel.
        grid: numbers of programs.
        arguments: of the kernel, in order; the first is a tensor, or begins with one.
        options: `num_warps` and `num_stages`, and options of NVIDIA's compiler, which that of AMD does not know.
    """
    if torch.version.hip is not None:
        options = for_amd(options)
    first = arguments[0]
    while isinstance(first, tuple):
        first = first[0]
    # Triton launches on the current device, which is another where the layers of a model are on several
    if first.device.type == "cuda" and first.device.index != torch.cuda.current_device():
        with torch.cuda.device(first.device):
            function[grid](*arguments, **OPTIONS, **options)
    else:
        function[grid](*arguments, **OPTIONS, **options)
