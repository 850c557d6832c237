"""Matrix products by the fastest engine that this machine has."""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

Matrix = Float[Tensor, "rows inner"]
Product = Callable[[Tensor, Tensor], Tensor]


def times_transposed(
    a: Float[Tensor, "rows inner"], b: Float[Tensor, "columns inner"]
) -> Float[Tensor, "rows columns"]:
    """The product a b^T; `a` is contiguous, `b` is contiguous or the plain transpose of something contiguous."""
    return _onednn(a, b) if _by_onednn(a, b) else _plain(a, b)


def long_product(
    a: Float[Tensor, "rows inner"], b: Float[Tensor, "inner columns"], kept: torch.dtype, longest: int = 128
) -> Float[Tensor, "rows columns"]:
    """The product a b of rows that are long, to be kept in the type `kept`; both are contiguous.

    oneDNN adds a row up in long sums, which lose digits, PyTorch's own choice in short ones. Here sums of at most
    `longest` numbers are made, and then added up, unless the type has no place for those digits.
    """
    narrow = torch.finfo(kept).eps > torch.finfo(a.dtype).eps
    if narrow or a.shape[1] <= longest or not _by_onednn(a, b):
        return times_transposed(a, b.t())
    pieces = zip(a.split(longest, 1), b.split(longest), strict=True)
    sums = (_onednn(x.contiguous(), y.t()) for x, y in pieces)
    whole = next(sums)
    for own in sums:
        whole += own
    return whole


def multiplied(
    x: Float[Tensor, "*any inner"], weight: Float[Tensor, "inner columns"]
) -> Float[Tensor, "*any columns"]:
    """The product x W, and its gradients, by that engine; whatever autocast says, in the wider of their types."""
    wide = torch.promote_types(x.dtype, weight.dtype)
    with torch.autocast(x.device.type, enabled=False):
        y = _Multiplied.apply(x.flatten(0, -2).to(wide), weight.to(wide))
    return y.unflatten(0, x.shape[:-1])


class _Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return times_transposed(x.contiguous(), weight.contiguous().t())

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (x, weight), (slope,) = ctx.saved_tensors, grad_outputs
        of_x = times_transposed(slope.contiguous(), weight.contiguous()) if ctx.needs_input_grad[0] else None
        # the narrower of the two is laid out anew
        narrow, other = (slope, x) if slope.shape[1] < x.shape[1] else (x, slope)
        of_weight = times_transposed(narrow.t().contiguous(), other.contiguous().t())
        return of_x, of_weight.t() if narrow is slope else of_weight


def gradient_type(type: torch.dtype) -> torch.dtype:
    """What the sums of a gradient are multiplied in, for inputs of this type: bfloat16 where that is faster.

    Their terms are rounded as the inputs were, and added up in float32.
    """
    if type == torch.bfloat16 and bfloat16_is_faster():
        return type
    return torch.promote_types(type, torch.float32)


def _by_onednn(a: Tensor, b: Tensor) -> bool:
    known = a.dtype == torch.float32 and a.device.type == "cpu" and a.numel() and b.numel()
    # what is timed cannot be traced
    return bool(known) and not torch.compiler.is_compiling() and onednn_is_faster()


@cache
def bfloat16_is_faster() -> bool:
    """Whether rounding to bfloat16 and multiplying beats multiplying in float32: tried out once, in about 50 ms."""
    a, b = torch.ones(256, 2048), torch.ones(64, 2048)
    held = b.bfloat16()
    return _seconds(lambda a, b: _plain(a.bfloat16(), held), a, b) < 0.9 * _seconds(times_transposed, a, b)


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies float32 matrices faster than PyTorch's own choice: tried out once, in about 50 ms."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    a, b = torch.ones(256, 64), torch.ones(2048, 64)
    try:
        return _seconds(_onednn, a, b) < 0.9 * _seconds(_plain, a, b)
    except RuntimeError:
        return False


def _onednn(a: Tensor, b: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")


def _plain(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b.t())


def _seconds(product: Product, a: Tensor, b: Tensor) -> float:
    product(a, b)
    best = float("inf")
    for _ in range(7):
        began = time.perf_counter()
        product(a, b)
        best = min(best, time.perf_counter() - began)
    return best
