"""Hand tensors to C++: as addresses and strides, in a job that both sides lay out alike."""

import ctypes

from torch import Tensor

from ordinate.native.build import function

BOOL, NUMBER, WHOLE, POINTER = ctypes.c_bool, ctypes.c_double, ctypes.c_int64, ctypes.c_void_p


class View(ctypes.Structure):
    """A tensor (batch, heads, tokens, channels) whose channels lie side by side, as in job.h."""

    _fields_ = [("data", POINTER), ("batch", WHOLE), ("head", WHOLE), ("token", WHOLE)]

    @classmethod
    def of(cls, x: Tensor) -> "View":
        """Where a tensor lies; whoever makes the view keeps the tensor."""
        return cls(x.data_ptr(), *x.stride()[:3])


def laid_out(x: Tensor) -> Tensor:
    """With the channels side by side."""
    return x if x.stride(3) == 1 else x.contiguous()


def empty_beside(x: Tensor) -> Tensor:
    """Room for a tensor (batch, heads, tokens, channels) like this one, the heads of a token side by side."""
    return x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3]).transpose(1, 2)


def run(name: str, job: ctypes.Structure) -> None:
    """Do a job by `ordinate_<name>`.

    Raises:
        RuntimeError: it failed.
        UnavailableError: there is no such function here.
    """
    problem = function(name)(ctypes.byref(job))
    if problem is not None:
        raise RuntimeError(f"{name}: {problem.decode()}")
