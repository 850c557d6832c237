"""Notice that parameters of a module have changed since a result was computed from them."""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim.optimizer import register_optimizer_step_post_hook

from ordinate.core.devices import on_cpu
from ordinate.core.tensors import has_memory, has_values, is_recorded

# larger parameters are compared in so many entries, and only after steps of optimisers
MAX_COMPARED = 2**12
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Steps:
    """Number of steps of all optimisers of the process: fused ones change parameters without a new version."""

    def __init__(self) -> None:
        self.taken = 0
        counter = count(1)

        def note(*_: Any) -> None:
            # a compiled optimiser would be compiled anew for each number
            if not torch.compiler.is_compiling():
                self.taken = next(counter)

        register_optimizer_step_post_hook(note)


STEPS = _Steps()


class _Parameter(NamedTuple):
    """A parameter as it was, or another tensor of a module.

    Args:
        holder: dictionary of the module that has it.
        name: its name there.
        value: the parameter.
        version: how often it had been changed in place.
        address: of its memory; 0: unknown.
        entries: copy of its numbers, as bits; of a large one, of some; None: not compared.
        compared: whether they are compared each time on a CPU: few.
    """

    holder: Mapping[str, Any]
    name: str
    value: Tensor
    version: int
    address: int
    entries: Tensor | None
    compared: bool

    @classmethod
    def of(cls, holder: Mapping[str, Any], name: str, x: Tensor) -> "_Parameter":
        """Note a parameter as it is."""
        # a large tensor that is not contiguous, such as an expanded mask, would be copied whole
        known = has_values(x) and (x.is_contiguous() or x.numel() <= MAX_COMPARED)
        compared = known and _is_plain(x) and x.numel() <= MAX_COMPARED
        return cls(holder, name, x, _version(x), _address(x), _entries(x).clone() if known else None, compared)

    @property
    def is_same(self) -> bool:
        """Whether it is the same tensor, in the same memory, and nothing has changed it in place."""
        x = self.value
        if self.holder.get(self.name) is not x or (_version(x), _address(x)) != (self.version, self.address):
            return False
        # a write through `.data` changes neither version nor address
        return not (self.compared and on_cpu(x)) or self.has_same_entries

    @property
    def has_same_entries(self) -> bool:
        """Whether its numbers are the same, those that are compared."""
        return self.entries is None or is_recorded() or torch.equal(self.entries, _entries(self.value))


class ParameterSnapshot:
    """The parameters of a module at one time, the buffers that it saves, and attributes that have gradients.

    Such an attribute is a tensor that has taken the place of a parameter: the sum of a weight and an adapter. Other
    attributes, and buffers that are not saved, are caches, which may be replaced at any time.

    Assigned, moved and replaced parameters are noticed, operations in place, and steps of optimisers. What is written
    through `.data` outside of an optimiser (`p.data.mul_(2)`) is noticed in parameters of up to 4096 numbers on a
    CPU; in larger ones, and on a GPU, it is not.

    Args:
        module: the module.
    """

    def __init__(self, module: nn.Module) -> None:
        self._steps = STEPS.taken
        self._parameters = [_Parameter.of(holder, name, holder[name]) for holder, name in _tensors(module)]

    def is_current(self) -> bool:
        """Whether nothing has changed. After an optimiser's step numbers are compared, which waits for a GPU."""
        if not all(x.is_same for x in self._parameters):
            return False
        if self._steps != STEPS.taken:
            if not all(x.has_same_entries for x in self._parameters):
                return False
            self._steps = STEPS.taken
        return True

    @property
    def learns(self) -> bool:
        """Whether a result computed from them now has gradients."""
        return torch.is_grad_enabled() and any(x.value.requires_grad for x in self._parameters)


def _tensors(module: nn.Module) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the dictionary and the name of each tensor that results may be computed from."""
    lists = [part for part in module.modules() if isinstance(part, ParametrizationList)]
    computed = {id(x) for part in lists for x in part.modules()}
    for part in module.modules():
        yield from ((part._parameters, name) for name, x in part._parameters.items() if x is not None)
        # weight_norm, spectral_norm and prune set others as they compute a weight, in a parametrisation or a hook
        if part._forward_pre_hooks or id(part) in computed:
            continue
        saved = part._buffers.keys() - part._non_persistent_buffers_set
        yield from ((part._buffers, name) for name in saved if part._buffers[name] is not None)
        yield from ((vars(part), name) for name, x in vars(part).items() if isinstance(x, Tensor) and x.requires_grad)


def _version(x: Tensor) -> int:
    """How often a tensor has been changed in place; not known of those made in inference mode."""
    return 0 if x.is_inference() else x._version


def _address(x: Tensor) -> int:
    return x.data_ptr() if has_memory(x) else 0


def _entries(x: Tensor) -> Tensor:
    """Its numbers as bits, so that NaN is equal to itself; of a large parameter, some."""
    flat = x.detach()
    if x.numel() > MAX_COMPARED:
        flat = flat.reshape(-1)[:: -(-x.numel() // MAX_COMPARED)]
    return flat.view(BITS[x.element_size()]) if _is_plain(x) and x.element_size() in BITS else flat


def _is_plain(x: Tensor) -> bool:
    """Whether it is no subclass, such as a sharded tensor, whose operations are others."""
    return type(x) in (Tensor, nn.Parameter)
