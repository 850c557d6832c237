"""What scans in C++ ask of their tensors."""

import torch
from torch import Tensor

from ordinate.checks import need
from ordinate.native import build

# a first text with fewer numbers is not worth the wait for a compiler
SMALLEST = 2**16


def refuses(name: str, *inputs: Tensor) -> str | None:
    """Why the scan of this name does not run in C++ on these tensors, the tokens' first; None: it does."""
    if any(x.device.type != "cpu" for x in inputs):
        return "it is made for CPUs"
    if torch.compiler.is_compiling():
        return "torch.compile cannot look into it"
    if any(x.dtype != torch.float32 for x in inputs):
        return "it computes in float32"
    if inputs[0].numel() < SMALLEST:
        return f"there are fewer than {SMALLEST} numbers"
    return build.reason(name)


def need_shapes(**tensors: tuple[Tensor, tuple[int, ...]]) -> None:
    """Raise unless each tensor has the shape that stands beside it: in C++ nothing else would tell."""
    for name, (x, shape) in tensors.items():
        need(
            x.shape == shape,
            f"{name} must belong to the same text, batch and heads as the others",
            lambda x=x, shape=shape: f"got {tuple(x.shape)}, expected {tuple(shape)}",
            "give all of one text, and the state that the tokens before it left",
        )
