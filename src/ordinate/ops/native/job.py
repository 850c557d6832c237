"""Calling convention of the C++ kernels: tensors as addresses and strides, in a struct that both sides declare."""

import ctypes
from collections.abc import Mapping, Sequence

from torch import Tensor

from ordinate.ops.native.build import load_kernel

BOOL, NUMBER, WHOLE, POINTER = ctypes.c_bool, ctypes.c_double, ctypes.c_int64, ctypes.c_void_p


class View(ctypes.Structure):
    """Address and strides of a tensor (batch, heads, tokens, channels) with contiguous channels, as in job.h."""

    _fields_ = [("data", POINTER), ("batch", WHOLE), ("head", WHOLE), ("token", WHOLE)]

    @classmethod
    def of(cls, x: Tensor) -> "View":
        """Describe a tensor, which must be kept alive while the view is used."""
        return cls(x.data_ptr(), *x.stride()[:3])


def empty_token_major(x: Tensor) -> Tensor:
    """Allocate a tensor of this shape, stored as (batch, tokens, heads, channels) for the output projection."""
    return x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3]).transpose(1, 2)


def call_kernel(name: str, job: ctypes.Structure, tensors: Mapping[str, Tensor | Sequence[Tensor] | None]) -> None:
    """Call the kernel `ordinate_<name>`.

    Args:
        name: name of the kernel.
        job: its job, with all fields but those of tensors.
        tensors: the tensors by field, with contiguous channels where the field is a `View`, else contiguous. None:
            the field stays empty.

    Raises:
        RuntimeError: the kernel reported an error.
        UnavailableError: the kernel is not available.
    """
    kinds, copies = {field[0]: field[1] for field in job._fields_}, []
    for field, given in tensors.items():
        if isinstance(given, Tensor):
            x = _as_in_memory(given, copies)
            view = kinds[field] is View
            # a kernel would read other numbers
            if not (x.is_contiguous() or (view and (x.stride(-1) == 1 or x.shape[-1] == 1))):
                raise RuntimeError(f"{name}: {field} has strides {x.stride()}; its channels must be contiguous")
            setattr(job, field, View.of(x) if view else x.data_ptr())
        elif given is not None:
            setattr(job, field, kinds[field](*(_as_in_memory(x, copies).data_ptr() for x in given)))
    problem = load_kernel(name)(ctypes.byref(job))
    if problem is not None:
        raise RuntimeError(f"{name}: {problem.decode()}")


def _as_in_memory(x: Tensor, copies: list[Tensor]) -> Tensor:
    """Return the tensor, or a copy if PyTorch negates it as it is read (`Tensor.is_neg`); the list keeps copies."""
    if not x.is_neg():
        return x
    copies.append(x.resolve_neg().contiguous())
    return copies[-1]
