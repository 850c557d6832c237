"""Conditions of the C++ recurrences (scans) on their tensors."""

import torch
from torch import Tensor

from ordinate.core.checks import need
from ordinate.ops.double_backward import untraceable
from ordinate.ops.native import build

# with fewer elements, compiling the kernel is not worth the wait
MIN_ELEMENTS = 2**16


def unsupported_reason(name: str, *inputs: Tensor) -> str | None:
    """Return why a kernel does not support these tensors (the first has one row per token); None: it does."""
    if any(x.device.type != "cpu" for x in inputs):
        return "it supports CPU tensors only"
    if torch.compiler.is_compiling():
        return "torch.compile cannot trace it"
    reason = untraceable(inputs[0])
    if reason is not None:
        return reason
    if any(x.dtype != torch.float32 for x in inputs):
        return "it supports float32 only"
    if inputs[0].numel() < MIN_ELEMENTS:
        return f"there are fewer than {MIN_ELEMENTS} elements"
    return build.unavailable_reason(name)


def check_shapes(**tensors: tuple[Tensor, tuple[int, ...]]) -> None:
    """Raise unless each tensor has the given shape: the C++ kernels do not check bounds."""
    for name, (x, shape) in tensors.items():
        need(
            x.shape == shape,
            f"{name} must have the batch, tokens and heads of the other inputs",
            lambda x=x, shape=shape: f"got shape {tuple(x.shape)}, expected {tuple(shape)}",
            "give all inputs of the same sequences, and the state left by their earlier tokens",
        )
