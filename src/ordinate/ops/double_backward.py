"""Second derivatives of autograd functions whose backward pass autograd cannot trace, and when to avoid them.

A fast backward pass (C++, in-place) is correct once. Where gradients of gradients are asked for
(`create_graph=True`), its results are connected to its inputs by `gradients`: their derivatives come from the plain
formula, which is differentiated twice, part by part, so that a formula in blocks holds one block at a time.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ordinate.core.tensors import autocasts, has_values, is_recorded, without_autocast

# tensors or None, by position
Tensors = Sequence[Any]
# from inputs and gradients of the outputs to parts: some outputs, and the gradients of these
Formula = Callable[[Tensors, Tensors], Iterable[tuple[Tensors, Tensors]]]


def gradients(
    fast: Callable[..., Sequence[Tensor | None]], formula: Formula, inputs: Tensors, upstream: Tensors
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the inputs by the fast backward pass; they can be differentiated if that is asked for.

    Called by the `backward` of an autograd function, with `inputs` as `ctx.saved_tensors` returns them. Autocast does
    not apply, as in PyTorch's own kernels, even if it is on where `backward` is called.

    Args:
        fast: returns the gradient of each input from those of the outputs; called once, without autograd.
        formula: the plain formula, in parts whose sum of gradients is the whole.
        inputs: inputs of the autograd function.
        upstream: gradients of its outputs.
    """
    if all(x is None for x in upstream):
        # no output has a gradient: a fast pass would multiply zeros, by infinity perhaps
        return tuple(None for _ in inputs)
    if any(map(_is_batched, upstream)):
        return one_by_one(lambda *one: gradients(fast, formula, inputs, one), *upstream)
    # inside a backward pass, grad mode is `create_graph`
    if not torch.is_grad_enabled():
        with _without_autocast(inputs):
            return tuple(fast(*upstream))
    return _Gradients.apply(fast, formula, len(inputs), *inputs, *upstream)


def one_by_one(backward: Callable[..., tuple[Tensor | None, ...]], *upstream: Any) -> tuple[Tensor | None, ...]:
    """Call `backward` with the gradients of the outputs; where these stand for many, with one after the other.

    With `is_grads_batched=True`, as in `torch.autograd.functional.jacobian(vectorize=True)`, PyTorch calls a backward
    pass once, with tensors that hide the axis of many gradients and have no memory that a kernel could read.
    """
    hidden = [_is_batched(x) for x in upstream]
    if not any(hidden):
        return backward(*upstream)
    # PyTorch tells the level of the hidden axis in no other way
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    # the size (1) is not read where there is a hidden axis
    shown = [torch._remove_batch_dim(x, level, 1, 0) if many else x for x, many in zip(upstream, hidden, strict=True)]
    count = len(shown[hidden.index(True)])
    made = [
        backward(*(x[place] if many else x for x, many in zip(shown, hidden, strict=True))) for place in range(count)
    ]
    stacked = (None if each[0] is None else torch.stack(each) for each in zip(*made, strict=True))
    return tuple(None if x is None else torch._add_batch_dim(x, 0, level) for x in stacked)


def _is_batched(gradient: Tensor | None) -> bool:
    # torch.compile cannot trace the question
    if gradient is None or torch.compiler.is_compiling():
        return False
    return torch._C._functorch.is_legacy_batchedtensor(gradient)


def in_one(function: Callable[..., Tensor | Sequence[Tensor | None]]) -> Formula:
    """Formula in one part, from a function that returns the outputs."""
    return partial(_whole, function)


def _whole(
    function: Callable[..., Tensor | Sequence[Tensor | None]], inputs: Tensors, upstream: Tensors
) -> Iterable[tuple[Tensors, Tensors]]:
    made = function(*inputs)
    return [((made,) if isinstance(made, Tensor) else made, upstream)]


def untraceable(x: Tensor) -> str | None:
    """Return why custom autograd functions and decisions by value do not work here; None if they do.

    Args:
        x: one of the inputs.
    """
    # torch.compile traces through its own checks
    if torch.compiler.is_compiling():
        return None
    if torch._C._are_functorch_transforms_active():
        return "transforms of torch.func cannot trace it"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation cannot trace it"
    if is_recorded():
        return "make_fx, and torch.func.linearize, cannot record it"
    return None if has_values(x) else "meta and fake tensors have no values"


class _Gradients(torch.autograd.Function):
    """A fast backward pass as a function of inputs and upstream gradients, differentiated by the plain formula."""

    @staticmethod
    # pyrefly: ignore[bad-override]  (functions are not tensors)
    def forward(ctx: Any, fast: Callable[..., Any], formula: Formula, count: int, *tensors: Tensor | None) -> Any:
        ctx.set_materialize_grads(False)
        ctx.formula, ctx.count = formula, count
        ctx.save_for_backward(*tensors)
        with _without_autocast(tensors):
            return tuple(fast(*tensors[count:]))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        # read once: checkpointing computes them anew at each access, and allows one
        endless, saved = torch.is_grad_enabled(), ctx.saved_tensors
        with torch.enable_grad(), _without_autocast(saved):
            # aliases: gradients stop at them, also where one input was computed from another
            own = [None if x is None else _alias(x, endless) for x in saved]
            sums: list[Tensor | None] = [None] * len(own)
            for outs, above in ctx.formula(own[: ctx.count], own[ctx.count :]):
                _add_second(sums, own, (outs, above), grad_outputs, endless)
        return None, None, None, *sums


def _without_autocast(tensors: Tensors) -> AbstractContextManager[Any]:
    x = next(x for x in tensors if x is not None)
    return without_autocast(x) if autocasts(x) else nullcontext()


def _alias(x: Tensor, attached: bool) -> Tensor:
    return x.view_as(x) if attached else x.detach().requires_grad_(x.requires_grad)


def _add_second(
    sums: list[Tensor | None], own: Tensors, part: tuple[Tensors, Tensors], wanted: Tensors, endless: bool
) -> None:
    """Add the gradients of one part: of the sum of `wanted` times its gradients."""
    pairs = [(out, up) for out, up in zip(*part, strict=True) if up is not None and _learns(out)]
    asked = [(x, slope) for x, slope in zip(own, wanted, strict=False) if slope is not None and _learns(x)]
    if not pairs or not asked:
        return
    outs, above = zip(*pairs, strict=True)
    leaves, slopes = zip(*asked, strict=True)
    found = torch.autograd.grad(outs, leaves, above, create_graph=True, allow_unused=True)
    pairs = [(one, slope) for one, slope in zip(found, slopes, strict=True) if _learns(one)]
    if not pairs:
        return
    places = [place for place, x in enumerate(own) if _learns(x)]
    first, slopes = zip(*pairs, strict=True)
    second = torch.autograd.grad(
        first, [own[place] for place in places], slopes, create_graph=endless, allow_unused=True
    )
    _add(sums, places, second)


def _add(sums: list[Tensor | None], places: Sequence[int], found: Sequence[Tensor | None]) -> None:
    for place, one in zip(places, found, strict=True):
        if one is not None:
            before = sums[place]
            sums[place] = one if before is None else before + one


def _learns(x: Tensor | None) -> bool:
    return x is not None and x.requires_grad
