"""Linear layer with a fast path for few tokens, as in decoding."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.ops.double_backward import untraceable
from ordinate.ops.native import build
from ordinate.ops.native.linear import MAX_VECTORS, multiply

# smallest matrix, in elements, for which compiling the C++ kernel is worth the wait
MIN_ELEMENTS = 2**16


def linear(
    x: Float[Tensor, "*any inner"], weight: Float[Tensor, "outer inner"], bias: Float[Tensor, " outer"] | None = None
) -> Float[Tensor, "*any outer"]:
    """Return x W^T + b, as `torch.nn.functional.linear`.

    On CPUs, in float32 and bfloat16 and without gradients, few vectors are multiplied in one pass over the matrix,
    accumulated in float32, in C++ where it can be built (`ordinate.ops.native`). Memory bandwidth is the limit then.
    """
    if _few(x, weight, bias) and build.unavailable_reason("linear") is None:
        return multiply(x.reshape(-1, x.shape[-1]), weight, bias).unflatten(0, x.shape[:-1])
    return nn.functional.linear(x, weight, bias)


class Linear(nn.Linear):
    """`torch.nn.Linear` with a fast path for few tokens: see `linear`."""

    def forward(self, input: Float[Tensor, "*any inner"]) -> Float[Tensor, "*any outer"]:
        """Return x W^T + b."""
        return linear(input, self.weight, self.bias)


def _few(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the fast path applies: few vectors, a large matrix, plain CPU tensors and no gradients."""
    if x.ndim < 2 or not 0 < x.shape[:-1].numel() <= MAX_VECTORS or weight.numel() < MIN_ELEMENTS:
        return False
    tensors = [x, weight] if bias is None else [x, weight, bias]
    # quantised, distributed and traced tensors are subclasses, whose own operations must run
    plain = all(type(tensor) in (Tensor, nn.Parameter) and tensor.dtype == x.dtype for tensor in tensors)
    learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    fits = x.dtype in (torch.float32, torch.bfloat16) and weight.stride(1) == 1
    here = all(tensor.device.type == "cpu" for tensor in tensors)
    return plain and here and fits and not learns and not _special(x)


def _special(x: Tensor) -> bool:
    """Whether autocast, torch.compile or torch.func is active: they must see the operation of PyTorch."""
    return torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling() or untraceable(x) is not None
