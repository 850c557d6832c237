"""Linear layers that are fast for few tokens, as a model has when it writes."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.native import build
from ordinate.native.linear import VECTORS, multiply

# numbers of a matrix from which on it is worth building C++, once
MANY = 2**16


def linear(
    x: Float[Tensor, "*any inner"], weight: Float[Tensor, "outer inner"], bias: Float[Tensor, " outer"] | None = None
) -> Float[Tensor, "*any outer"]:
    """What `torch.nn.functional.linear` gives, x W^T + b.

    A few vectors are multiplied in one pass over the matrix, summed in float32, in C++ where it can be built
    (`ordinate.native`): on CPUs, in float32 and bfloat16, where no gradient is asked for. What limits it then is how
    fast memory is read.
    """
    if _few(x, weight, bias) and build.reason("linear") is None:
        return multiply(x.reshape(-1, x.shape[-1]), weight, bias).unflatten(0, x.shape[:-1])
    return nn.functional.linear(x, weight, bias)


class Linear(nn.Linear):
    """PyTorch's linear layer, faster for few tokens: see `linear`."""

    def forward(self, input: Float[Tensor, "*any inner"]) -> Float[Tensor, "*any outer"]:
        """The product, and what is added."""
        return linear(input, self.weight, self.bias)


def _few(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether these are few plain vectors and a large plain matrix that nothing is learned of."""
    if x.ndim < 2 or not 0 < x.shape[:-1].numel() <= VECTORS or weight.numel() < MANY:
        return False
    tensors = [x, weight] if bias is None else [x, weight, bias]
    # quantised, distributed and traced tensors have types of their own
    plain = all(type(tensor) in (Tensor, nn.Parameter) and tensor.dtype == x.dtype for tensor in tensors)
    learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    fits = x.dtype in (torch.float32, torch.bfloat16) and weight.stride(1) == 1
    here = all(tensor.device.type == "cpu" for tensor in tensors)
    return plain and here and fits and not learns and not _special()


def _special() -> bool:
    """Whether types are chosen, or operations looked at, by somebody else."""
    return torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
