"""Context managers that patch attributes, inputs and outputs of modules, and restore them on exit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def patched_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a module, a class or an instance."""
    own = vars(owner)
    there, before = name in own, own.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if there:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextmanager
def evaluation_mode(model: nn.Module, *, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode, without gradients unless wanted; restores the mode of each module on exit."""
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        with torch.set_grad_enabled(gradients):
            yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def patched_inputs(module: nn.Module, look: Callable[[tuple[Any, ...]], tuple[Any, ...] | None]) -> Iterator[None]:
    """Call `look` on the positional inputs of a module; a returned tuple replaces them."""
    handle = module.register_forward_pre_hook(lambda _, given: look(given))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def patched_output(module: nn.Module, look: Callable[[Any], Any]) -> Iterator[None]:
    """Call `look` on the output of a module; a returned value replaces it."""
    handle = module.register_forward_hook(lambda _, __, out: look(out))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def patched_first_input(module: nn.Module, look: Callable[[Any], Any]) -> Iterator[None]:
    """Call `look` on the first argument of a module, positional or keyword; a returned value replaces it.

    If the same tensor is passed again, as keys and values of self-attention, it is replaced there too.
    """

    def enter(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any] | None:
        first = next(iter((*given, *named.values())))
        new = look(first)
        if new is None:
            return None
        return tuple(new if x is first else x for x in given), {
            name: new if x is first else x for name, x in named.items()
        }

    handle = module.register_forward_pre_hook(enter, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
