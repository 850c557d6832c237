"""Gradient checkpointing: a function's activations are computed again in the backward pass, not stored."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Result = TypeVar("Result")

_INSIDE: ContextVar[bool] = ContextVar("inside a checkpointed function", default=False)


def checkpointed(function: Callable[..., Result], *given: Any, **named: Any) -> Result:
    """Compute a function without storing its activations; the backward pass computes it again.

    Random numbers and autocast are those of the first time, so results and gradients are bit for bit the same.

    Args:
        function: the function.
        given: its arguments.
        named: its arguments by name.
    Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost, https://arxiv.org/abs/1604.06174.
    """

    def compute(*given: Any, **named: Any) -> Result:
        token = _INSIDE.set(True)
        try:
            return function(*given, **named)
        finally:
            _INSIDE.reset(token)

    return checkpoint(compute, *given, use_reentrant=False, **named)


def is_checkpointed() -> bool:
    """Whether a checkpointed function runs, for the first time or again in the backward pass."""
    return _INSIDE.get()


def stored(make: Callable[[], Result]) -> Result:
    """Compute what is kept beyond a checkpointed function: what its gradient needs is stored, not computed again.

    The second time the function finds it made, so nothing of it may count among its activations. A function may be
    checkpointed by PyTorch too, which stores activations by hooks.
    """
    if torch.compiler.is_compiling() or torch._C._autograd._top_saved_tensors_default_hooks(False) is None:
        return make()
    with torch.autograd.graph.saved_tensors_hooks(_same, _same):
        return make()


def _same(x: Tensor) -> Tensor:
    return x
