"""Recurrences as custom operators: one node of a graph of torch.compile, for sequences of any length.

Where torch.compile traces a loop over tokens or chunks it unrolls it, so that each length has a graph of its own. A
custom operator is not traced: the graph calls it, and it calls the function with the actual tensors, which then
chooses its kernel as in eager mode.
"""

import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from ordinate.core.devices import on_cpu

Given = ParamSpec("Given")
Results = TypeVar("Results", bound=tuple[Tensor, ...])
Function = Callable[Given, Results]
# of an operator: tensors, or None
Tensors = Sequence[Any]


def custom_operator(*like: str) -> Callable[[Function[Given, Results]], Function[Given, Results]]:
    """Return a decorator for a function of tensors: inside torch.compile, on a CPU, it is one custom operator.

    The backward pass calls the function again, and differentiates that by autograd. Elsewhere (in eager mode, on
    other devices, and in torch.export, whose programs have operations of PyTorch only) the function itself is called.

    At the first call of a graph, PyTorch (2.13) runs an operator where views of conjugates are read without
    conjugation: functions use `conj_physical`, not `conj`.

    Args:
        like: for each result the argument that has its shape and dtype. All arguments are tensors or None, the first
            one is a tensor, and results share no memory with them.
    """

    def decorate(function: Function[Given, Results]) -> Function[Given, Results]:
        operator = _registered(function, like)

        @wraps(function)
        def call(*given: Given.args, **named: Given.kwargs) -> Results:
            return (operator if _is_compiled(given[0]) else function)(*given, **named)

        return call

    return decorate


def _is_compiled(x: Any) -> bool:
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return False
    # without tokens a function may return its arguments, which an operator must not
    return on_cpu(x) and x.numel() > 0


def _registered(function: Callable[..., tuple[Tensor, ...]], like: Sequence[str]) -> Callable[..., Any]:
    """Register the operator, its shapes, and its gradients."""
    parameters = inspect.signature(function).parameters
    places = [list(parameters).index(name) for name in like]
    listed = (f"Tensor? {name}{'' if x.default is x.empty else '=None'}" for name, x in parameters.items())
    schema = f"({', '.join(listed)}) -> ({', '.join('Tensor' for _ in like)})"
    name = f"ordinate::{function.__name__.strip('_')}"

    def forward(*inputs: Tensor | None) -> tuple[Tensor, ...]:
        return tuple(x.contiguous() for x in function(*inputs))

    def shaped(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(inputs[place].new_empty(inputs[place].shape) for place in places)

    operator = torch.library.custom_op(name, forward, mutates_args=(), schema=schema)
    operator.register_fake(shaped)
    backward = _registered_backward(name, function)

    def back(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        # of the arguments that were given
        learned = ctx.needs_input_grad
        found = iter(backward(upstream, ctx.saved_tensors[: len(learned)], learned))
        return tuple(next(found) if asked else None for asked in learned)

    operator.register_autograd(back, setup_context=_save)
    return operator


def _registered_backward(name: str, function: Callable[..., tuple[Tensor, ...]]) -> Callable[..., list[Tensor]]:
    """Register the operator that returns the gradients of the arguments that have one."""

    def backward(upstream: Tensors, inputs: Tensors, learned: Sequence[bool]) -> list[Tensor]:
        # inside an operator autograd is disabled, but only in the calling thread
        with ThreadPoolExecutor(1) as other:
            return other.submit(_gradients, function, upstream, inputs, learned).result()

    def shaped(upstream: Tensors, inputs: Tensors, learned: Sequence[bool]) -> list[Tensor]:
        return [x.new_empty(x.shape) for x, asked in zip(inputs, learned, strict=True) if asked]

    schema = "(Tensor?[] upstream, Tensor?[] inputs, bool[] learned) -> Tensor[]"
    operator = torch.library.custom_op(f"{name}_backward", backward, mutates_args=(), schema=schema)
    operator.register_fake(shaped)
    return operator


def _gradients(
    function: Callable[..., tuple[Tensor, ...]], upstream: Tensors, inputs: Tensors, learned: Sequence[bool]
) -> list[Tensor]:
    leaves = [x if x is None else x.detach().requires_grad_(asked) for x, asked in zip(inputs, learned, strict=True)]
    asked = [x for x in leaves if x is not None and x.requires_grad]
    pairs = [(y, slope) for y, slope in zip(function(*leaves), upstream, strict=True) if slope is not None]
    outs, slopes = zip(*pairs, strict=True)
    found = torch.autograd.grad(outs, asked, slopes, allow_unused=True, materialize_grads=True)
    return [x.contiguous() for x in found]


def _save(ctx: Any, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, ...]) -> None:
    # a result without a gradient has None, not zeros, which would be multiplied by infinity perhaps
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs)
