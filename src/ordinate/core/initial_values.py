"""Initial values of modules that exist already: after `to_empty`, for example."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn


@torch.no_grad()
def copy_initial_values(module: nn.Module, make: Callable[[], nn.Module]) -> None:
    """Give a module the parameters and buffers of a new one.

    Args:
        module: the module; its dtypes and devices stay as they are.
        make: builds the new one, on the CPU.
    """
    with torch.device("cpu"):
        made = make()
        for part in made.modules():
            # a copy of one that was given without values
            if isinstance(part, Rebuilt) and any(x.is_meta for x in part.parameters()):
                part.to_empty(device="cpu").reset_parameters()
        new = made.state_dict()
    for name, value in module.state_dict().items():
        value.copy_(new[name])


class Rebuilt(nn.Module):
    """Base class of members that keep the arguments of their constructor."""

    parts_given: tuple[Any, ...]
    """Arguments given by place."""
    options_given: Mapping[str, Any]
    """Arguments given by name."""

    def reset_parameters(self) -> None:
        """Initialise all parameters anew, as those of a new instance with the same options."""
        copy_initial_values(self, lambda: type(self)(*self.parts_given, **self.options_given))
