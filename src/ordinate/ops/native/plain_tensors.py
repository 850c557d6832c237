"""Conditions under which a C++ kernel may take the place of an operation of PyTorch that users can observe."""

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from ordinate.ops.double_backward import untraceable


def are_plain(*tensors: Tensor | None) -> bool:
    """Whether these are tensors of one type on a CPU, no subclasses: quantised, distributed or traced ones."""
    given = [tensor for tensor in tensors if tensor is not None]
    return all(
        type(tensor) in (Tensor, nn.Parameter) and tensor.dtype == given[0].dtype and tensor.device.type == "cpu"
        for tensor in given
    )


def is_observed(x: Tensor) -> bool:
    """Whether something is active that must see the operation of PyTorch.

    That is torch.compile, torch.jit.trace, torch.func, or a mode that watches operations, such as a counter of FLOPs.
    """
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing() or is_in_torch_dispatch_mode()
    return traced or untraceable(x) is not None
