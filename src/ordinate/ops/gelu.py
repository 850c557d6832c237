"""GELU, exact and in its tanh approximation."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from ordinate.ops.native import build, scan
from ordinate.ops.native import gelu as native
from ordinate.ops.native.plain_tensors import are_plain, is_observed

Numbers = Float[Tensor, "*any"]


def gelu(x: Numbers) -> Numbers:
    """X Phi(x), with the cumulative normal distribution Phi.

    On CPUs in C++ where it can be built, in about half of the time of PyTorch's; float32 and bfloat16.

    Source: Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415.
    """
    return native.gelu(functional.gelu, x, tanh=False) if _fits(x) else functional.gelu(x)


def gelu_tanh(x: Numbers) -> Numbers:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as in GPT-2; in C++ as `gelu`, in a third of PyTorch's time."""
    return native.gelu(_plain_tanh, x, tanh=True) if _fits(x) else _plain_tanh(x)


def _plain_tanh(x: Numbers) -> Numbers:
    return functional.gelu(x, approximate="tanh")


def _fits(x: Numbers) -> bool:
    # not under torch.compile, which would compile for each limit of the sizes
    if torch.compiler.is_compiling():
        return False
    enough = x.dtype in (torch.float32, torch.bfloat16) and x.numel() >= scan.MIN_ELEMENTS and x.is_contiguous()
    return enough and are_plain(x) and not is_observed(x) and build.unavailable_reason("gelu") is None
