"""Calling convention of the C++ kernels: tensors as addresses and strides, in a struct that both sides declare."""

import ctypes

from torch import Tensor

from ordinate.ops.native.build import load_kernel

BOOL, NUMBER, WHOLE, POINTER = ctypes.c_bool, ctypes.c_double, ctypes.c_int64, ctypes.c_void_p


class View(ctypes.Structure):
    """Address and strides of a tensor (batch, heads, tokens, channels) with contiguous channels, as in job.h."""

    _fields_ = [("data", POINTER), ("batch", WHOLE), ("head", WHOLE), ("token", WHOLE)]

    @classmethod
    def of(cls, x: Tensor) -> "View":
        """Describe a tensor; the caller must keep it alive while the view is used."""
        return cls(x.data_ptr(), *x.stride()[:3])


def contiguous_channels(x: Tensor) -> Tensor:
    """Return a tensor with contiguous channels."""
    return x if x.stride(3) == 1 else x.contiguous()


def empty_token_major(x: Tensor) -> Tensor:
    """Allocate a tensor of this shape, stored as (batch, tokens, heads, channels) for the output projection."""
    return x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3]).transpose(1, 2)


def call_kernel(name: str, job: ctypes.Structure) -> None:
    """Call the kernel `ordinate_<name>`.

    Raises:
        RuntimeError: the kernel reported an error.
        UnavailableError: the kernel is not available.
    """
    problem = load_kernel(name)(ctypes.byref(job))
    if problem is not None:
        raise RuntimeError(f"{name}: {problem.decode()}")
