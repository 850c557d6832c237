"""A guard against reading numbers of tensors, for which a process waits until a GPU has done all its work."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ordinate.core.devices import as_if_on

# operators whose result, or its shape, is read from numbers on the device
READING = frozenset(
    {
        "aten::_local_scalar_dense",
        "aten::item",
        "aten::is_nonzero",
        "aten::equal",
        "aten::allclose",
        "aten::nonzero",
        "aten::masked_select",
        "aten::_unique2",
        "aten::unique_dim",
        "aten::unique_consecutive",
        "aten::repeat_interleave",
        "aten::bincount",
    }
)
# namespace of our operators
OWN = "ordinate"
# operators that count what a mask chooses
CHOOSING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
# the same, where what is written is a tensor
WRITING = frozenset({Tensor.__setitem__, Tensor.index_put, Tensor.index_put_, torch.index_put, torch.index_put_})
# methods that leave PyTorch, or make a tensor of Python numbers, which is copied to the device from ordinary memory
METHODS = frozenset(
    {
        Tensor.item,
        Tensor.tolist,
        Tensor.cpu,
        Tensor.numpy,
        Tensor.__bool__,
        Tensor.__int__,
        Tensor.__float__,
        Tensor.__index__,
        Tensor.new_tensor,
        torch.tensor,
        torch.as_tensor,
    }
)


@contextmanager
def no_waiting(kind: str = "cuda") -> Iterator[None]:
    """Compute as on a GPU, and raise where a process would wait for it, or could not be captured in a CUDA graph.

    It runs on tensors of any device: on CPU tensors everything is chosen as it is on a GPU (`as_if_on`). Constants
    that are held from the first use on (`core.devices.numbers_beside`) count where they are made: compute once
    before. Operators of Ordinate are looked into.

    Args:
        kind: the kind of device whose rules apply.

    Raises:
        AssertionError: a number was read, a shape depends on numbers, or a tensor was made of Python numbers.
    """
    with ExitStack() as stack:
        for part in (as_if_on(kind), _Operators(), _Methods()):
            stack.enter_context(part)
        yield


class _Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == OWN:
            # what is computed within an operator of ours, whose own call would come here again
            with self, _Methods():
                return func.redispatch(_keys_of(args), *args, **(kwargs or {}))
        name = func._schema.name
        indices = args[1:2] if name in CHOOSING else ()
        # a Python number, which comes here without axes, is written without counting what a mask chooses
        written = name == "aten::index" or (name in CHOOSING and args[2].ndim > 0)
        chooses = written and _has_mask(indices)
        # with its size given, or one number of times for all, repeat_interleave reads nothing
        counted = func._schema.overload_name == "self_int" or (kwargs or {}).get("output_size") is not None
        sized = name == "aten::repeat_interleave" and counted
        if (name in READING and not sized) or chooses:
            raise AssertionError(f"{name} waits for a GPU; decide by metadata, or check with core.tensors.need_true")
        return func(*args, **(kwargs or {}))


class _Methods(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = func is Tensor.to and _to_the_host(*args, **(kwargs or {}))
        writes = func in WRITING and len(args) > 2 and isinstance(args[2], Tensor) and _has_mask(args[1])
        if func in METHODS or leaves or writes:
            called = getattr(func, "__name__", str(func))
            raise AssertionError(f"{called} waits for a GPU; decide by metadata, or use core.devices.numbers_beside")
        return func(*args, **(kwargs or {}))


def _keys_of(args: Any) -> torch._C.DispatchKeySet:
    """Return the kernels of the device that an operator's tensors are on."""
    kind = next(x.device.type for x in tree_leaves(args) if isinstance(x, Tensor))
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, kind.upper()))


def _has_mask(indices: Any) -> bool:
    return any(isinstance(x, Tensor) and x.dtype in (torch.bool, torch.uint8) for x in tree_leaves(indices))


def _to_the_host(x: Tensor, *given: Any, **options: Any) -> bool:
    """Whether a tensor is copied to the CPU by name; a tensor that is there may be sent to its own device."""
    wanted = [target for target in (*given, options.get("device")) if isinstance(target, (str, torch.device))]
    if x.device.type == "cpu":
        wanted = [target for target in wanted if isinstance(target, str)]
    return any(torch.device(target).type == "cpu" for target in wanted)
