"""Put something else in a place, for a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let an attribute of a module, a class or an instance be another."""
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
def at_rest(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards each module is as it was."""
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def hooked(module: nn.Module, look: Callable[[tuple[Any, ...]], tuple[Any, ...] | None]) -> Iterator[None]:
    """Let something look at what enters a module, and give other things in their place."""
    handle = module.register_forward_pre_hook(lambda _, given: look(given))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def changed(module: nn.Module, look: Callable[[Any], Any]) -> Iterator[None]:
    """Let something look at what leaves a module, and give something else in its place."""
    handle = module.register_forward_hook(lambda _, __, out: look(out))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def entering(module: nn.Module, look: Callable[[Any], Any]) -> Iterator[None]:
    """Let something look at what a module is given first, by place or by name; what it returns stands for it.

    Where the same tensor is given again, as keys and values beside queries, it is replaced there too.
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
