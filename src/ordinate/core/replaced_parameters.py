"""A module with other tensors in the place of its parameters."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

Kind = TypeVar("Kind", bound=nn.Module)


def replaced(module: Kind, tensors: Iterable[Tensor]) -> Kind:
    """Return a copy of a module, and of the modules in it, with these tensors in the place of its parameters.

    `torch.func.functional_call` puts them into the module itself for as long as it runs: another thread that uses the
    module meanwhile would read them, and may leave them there. Call the copy by its `forward`: it is no module of the
    user's, for the hooks of all modules that counters of operations set.

    Args:
        module: the module; what it holds beside parameters is shared with the copy.
        tensors: in the order of `module.parameters()`.
    """
    return _copied(module, {id(x): new for x, new in zip(module.parameters(), tensors, strict=True)})


def _copied(module: Any, new: Mapping[int, Tensor]) -> Any:
    # not copy.copy, which parametrised modules refuse
    other = object.__new__(type(module))
    vars(other).update(vars(module))
    own = {name: new.get(id(x), x) for name, x in module._parameters.items()}
    parts = {name: None if part is None else _copied(part, new) for name, part in module._modules.items()}
    vars(other).update(_parameters=own, _modules=parts)
    return other
