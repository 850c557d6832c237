"""Linear layer with a fast path for few tokens, as in decoding."""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.ops.matmul import linear_product, takes_onednn
from ordinate.ops.native import build
from ordinate.ops.native.linear import MAX_VECTORS, multiply
from ordinate.ops.native.plain_tensors import are_plain, is_observed

# smallest matrix, in elements, for which compiling the C++ kernel is worth the wait
MIN_ELEMENTS = 2**16
# fewest multiplications for which the faster product outweighs the overhead of an autograd node in Python
MIN_PRODUCTS = 2**22


def linear(
    x: Float[Tensor, "*any inner"], weight: Float[Tensor, "outer inner"], bias: Float[Tensor, " outer"] | None = None
) -> Float[Tensor, "*any outer"]:
    """Return x W^T + b, as `torch.nn.functional.linear`.

    On CPUs, in float32 and bfloat16 and without gradients, few vectors are multiplied in one pass over the matrix,
    accumulated in float32, in C++ where it can be built (`ordinate.ops.native`). Memory bandwidth is the limit then.
    Many vectors are multiplied by oneDNN where it is faster than PyTorch's BLAS (`ordinate.ops.matmul`).
    """
    # torch.compile, which has its own choice, would compile for each limit of the sizes that is asked for here
    if not x.is_cpu or torch.compiler.is_compiling():
        return nn.functional.linear(x, weight, bias)
    if _few(x, weight, bias) and build.unavailable_reason("linear") is None:
        return multiply(x.reshape(-1, x.shape[-1]), weight, bias).unflatten(0, x.shape[:-1])
    if _many(x, weight, bias):
        return linear_product(x, weight, bias)
    return nn.functional.linear(x, weight, bias)


class Linear(nn.Linear):
    """`torch.nn.Linear` with a fast path for few tokens: see `linear`."""

    def forward(self, input: Float[Tensor, "*any inner"]) -> Float[Tensor, "*any outer"]:
        """Return x W^T + b."""
        return linear(input, self.weight, self.bias)


def weight_and_bias(layer: nn.Module) -> tuple[Float[Tensor, "outer inner"], Float[Tensor, " outer"] | None]:
    """Return the matrix W and the bias b of a layer that computes x W^T + b.

    A module in the place of `torch.nn.Linear` may compute more than its `weight` says, as an adapter (LoRA) does. Its
    matrix is what it makes of the unit vectors. One without parameters, as a quantised layer is, takes float32. So is
    the matrix of a layer whose weight is an attribute that hooks set before each call, as those of
    `torch.nn.utils.prune`, `weight_norm` and `spectral_norm` do.

    Args:
        layer: a linear layer, or a module in its place, with `in_features`.
    """
    plain = type(layer).forward in (nn.Linear.forward, Linear.forward) and "forward" not in vars(layer)
    # PyTorch 2.11 cannot trace a set of the attributes
    own = vars(layer)
    made_by_hook = ("weight" in own or "bias" in own) and layer._forward_pre_hooks
    if isinstance(layer, nn.Linear) and plain and not made_by_hook:
        return layer.weight, layer.bias
    floats = (x for x in layer.parameters() if x.is_floating_point())
    like = next(floats, torch.empty(0, dtype=torch.float32, device="cpu"))
    unit = torch.eye(cast(int, layer.in_features), dtype=like.dtype, device=like.device)
    bias = layer(torch.zeros_like(unit[:1]))
    return (layer(unit) - bias).mT, bias[0]


def _few(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the product of few vectors applies: a large matrix, plain CPU tensors and no gradients."""
    if x.ndim < 2 or not 0 < x.shape[:-1].numel() <= MAX_VECTORS or weight.numel() < MIN_ELEMENTS:
        return False
    learns = torch.is_grad_enabled() and any(y is not None and y.requires_grad for y in (x, weight, bias))
    fits = x.dtype in (torch.float32, torch.bfloat16) and weight.stride(1) == 1
    return fits and not learns and are_plain(x, weight, bias) and not _is_special(x)


def _many(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN applies: many vectors, plain CPU tensors in float32."""
    if x.ndim < 2 or x.shape[:-1].numel() * weight.numel() < MIN_PRODUCTS:
        return False
    return takes_onednn(x, weight) and are_plain(x, weight, bias) and not _is_special(x)


def _is_special(x: Tensor) -> bool:
    # autocast would convert the operands
    return torch.is_autocast_enabled("cpu") or is_observed(x)
