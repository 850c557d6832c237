"""Matrix products by the faster of PyTorch's BLAS and oneDNN, chosen by timing both once."""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.double_backward import untraceable

Matrix = Float[Tensor, "rows inner"]
Product = Callable[[Tensor, Tensor], Tensor]


def matmul_transposed(
    a: Float[Tensor, "rows inner"], b: Float[Tensor, "columns inner"]
) -> Float[Tensor, "rows columns"]:
    """Return a b^T; `a` is contiguous, `b` is contiguous or the transpose of a contiguous matrix."""
    return _onednn(a, b) if _by_onednn(a, b) else _plain(a, b)


def matmul_partial_sums(
    a: Float[Tensor, "rows inner"], b: Float[Tensor, "inner columns"], kept: torch.dtype, longest: int = 128
) -> Float[Tensor, "rows columns"]:
    """Return a b with a long inner dimension, for a result that is rounded to the type `kept`; both are contiguous.

    oneDNN accumulates a whole row in one long sum, which loses digits; PyTorch's BLAS accumulates in short sums. With
    oneDNN, partial sums of at most `longest` terms are computed and then added, unless `kept` is too narrow for the
    difference to show.
    """
    narrow = torch.finfo(kept).eps > torch.finfo(a.dtype).eps
    if narrow or a.shape[1] <= longest or not _by_onednn(a, b):
        return matmul_transposed(a, b.t())
    pieces = zip(a.split(longest, 1), b.split(longest), strict=True)
    sums = (_onednn(x.contiguous(), y.t()) for x, y in pieces)
    whole = next(sums)
    for own in sums:
        whole += own
    return whole


def matmul(x: Float[Tensor, "*any inner"], weight: Float[Tensor, "inner columns"]) -> Float[Tensor, "*any columns"]:
    """Return x W, with gradients by the same engine; ignores autocast and computes in the wider of both types."""
    wide = torch.promote_types(x.dtype, weight.dtype)
    with torch.autocast(x.device.type, enabled=False):
        if untraceable(x):
            return x.to(wide) @ weight.to(wide)
        y = _Multiplied.apply(x.flatten(0, -2).to(wide), weight.to(wide))
    return y.unflatten(0, x.shape[:-1])


class _Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return matmul_transposed(x.contiguous(), weight.contiguous().t())

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (x, weight), (slope,) = ctx.saved_tensors, grad_outputs
        # gradients of gradients are asked for: products that autograd can trace
        if torch.is_grad_enabled():
            return slope @ weight.t(), x.t() @ slope
        of_x = matmul_transposed(slope.contiguous(), weight.contiguous()) if ctx.needs_input_grad[0] else None
        # a product needs one transposed copy: copy the narrower operand
        narrow, other = (slope, x) if slope.shape[1] < x.shape[1] else (x, slope)
        of_weight = matmul_transposed(narrow.t().contiguous(), other.contiguous().t())
        return of_x, of_weight.t() if narrow is slope else of_weight


def gradient_type(type: torch.dtype) -> torch.dtype:
    """Return the operand type for products in gradients of inputs of this type: bfloat16 where that is faster.

    Operands are then rounded like the inputs; sums are accumulated in float32 all the same.
    """
    if type == torch.bfloat16 and bfloat16_is_faster():
        return type
    return torch.promote_types(type, torch.float32)


def _by_onednn(a: Tensor, b: Tensor) -> bool:
    known = a.dtype == torch.float32 and a.device.type == "cpu" and a.numel() and b.numel()
    # timing cannot be traced by torch.compile
    return bool(known) and not torch.compiler.is_compiling() and onednn_is_faster()


@cache
def bfloat16_is_faster() -> bool:
    """Whether rounding to bfloat16 and multiplying beats float32, timed once per process (about 50 ms)."""
    a, b = torch.ones(256, 2048), torch.ones(64, 2048)
    held = b.bfloat16()
    return _seconds(lambda a, b: _plain(a.bfloat16(), held), a, b) < 0.9 * _seconds(matmul_transposed, a, b)


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies float32 matrices faster than PyTorch's BLAS, timed once per process (about 50 ms)."""
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
