"""Definition and launch of Triton kernels, and the tensors that they take."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

# fused multiply-add is off by default from Triton 3.10 on
OPTIONS = {"enable_fp_fusion": True}


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
    """Describe a tensor whose channels are contiguous."""
    return Matrix(x, *x.stride()[:3])


@kernel
def address(x, batch, head, i):
    """Address of the first channel of each token of a head."""
    start = x.data + batch.to(tl.int64) * x.batch + tl.cast(head, tl.int64) * x.head
    return start + i.to(tl.int64)[:, None] * x.row


def contiguous_channels(x: Tensor) -> Tensor:
    """Return the tensor itself if its channels are contiguous, else a copy."""
    return x if x.stride(3) == 1 else x.contiguous()


def launch(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: Mapping[str, int]) -> None:
    """Launch a kernel on a grid of programs.

    Args:
        function: the kernel.
        grid: numbers of programs.
        arguments: of the kernel, in order.
        options: `num_warps` and `num_stages`.
    """
    function[grid](*arguments, **OPTIONS, **options)
