"""Matrix products by the faster of PyTorch's BLAS and oneDNN, chosen by the processor.

Timing both instead would let other work on the machine decide, so that processes would differ in their bits.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.tensors import without_autocast
from ordinate.ops.double_backward import one_by_one, untraceable
from ordinate.ops.native import build
from ordinate.ops.native.transpose import transposed_copy

Matrix = Float[Tensor, "rows inner"]
# smallest matrix, in elements, for which compiling the C++ kernel is worth the wait
MIN_ELEMENTS = 2**16
# keys of a tile of PyTorch's attention on a CPU
SDPA_KEYS = 512


def matmul_transposed(
    a: Float[Tensor, "rows inner"], b: Float[Tensor, "columns inner"], bias: Float[Tensor, " columns"] | None = None
) -> Float[Tensor, "rows columns"]:
    """Return a b^T + bias; `a` is contiguous, `b` is contiguous or the transpose of a contiguous matrix."""
    if takes_onednn(a, b):
        return _onednn(a, b, bias)
    return torch.mm(a, b.t()) if bias is None else torch.addmm(bias, a, b.t())


def matmul_partial_sums(
    a: Float[Tensor, "rows inner"], b: Float[Tensor, "inner columns"], kept: torch.dtype, longest: int = 128
) -> Float[Tensor, "rows columns"]:
    """Return a b with a long inner dimension, for a result that is rounded to the type `kept`; both are contiguous.

    oneDNN accumulates a whole row in one long sum, which loses digits; PyTorch's BLAS accumulates in short sums. With
    oneDNN, partial sums of at most `longest` terms are computed and then added, unless `kept` is too narrow for the
    difference to show. They need copies, which cost more than oneDNN gains without 512-bit units.
    """
    narrow = torch.finfo(kept).eps > torch.finfo(a.dtype).eps
    if narrow or a.shape[1] <= longest:
        return matmul_transposed(a, b.t())
    if not takes_onednn(a, b):
        # on Intel's processors the sums of BLAS are longer than the tiles of PyTorch's attention
        return _mm_by_tiles(a, b) if blas_is_fast() else torch.mm(a, b)
    if not has_512_bit_units():
        return torch.mm(a, b)
    pieces = zip(a.split(longest, 1), b.split(longest), strict=True)
    sums = (_onednn(x.contiguous(), y.t()) for x, y in pieces)
    whole = next(sums)
    for own in sums:
        whole += own
    return whole


def _mm_by_tiles(a: Float[Tensor, "rows inner"], b: Float[Tensor, "inner columns"]) -> Float[Tensor, "rows columns"]:
    """Return a b as the sum of products of at most `SDPA_KEYS` terms, added one after the other."""
    first, *others = zip(a.split(SDPA_KEYS, 1), b.split(SDPA_KEYS), strict=True)
    whole = torch.mm(*first)
    for one, other in others:
        whole.addmm_(one, other)
    return whole


def matmul(x: Float[Tensor, "*any inner"], weight: Float[Tensor, "inner columns"]) -> Float[Tensor, "*any columns"]:
    """Return x W, with gradients by the same engine; ignores autocast and computes in the wider of both types."""
    wide = torch.promote_types(x.dtype, weight.dtype)
    with without_autocast(x):
        if untraceable(x):
            return x.to(wide) @ weight.to(wide)
        return linear_product(x.to(wide), weight.to(wide).t())


def linear_product(
    x: Float[Tensor, "*any inner"], weight: Float[Tensor, "outer inner"], bias: Float[Tensor, " outer"] | None = None
) -> Float[Tensor, "*any outer"]:
    """Return x W^T + b, with gradients by the same engine; not for transforms of torch.func or autocast."""
    return _Linear.apply(x.reshape(-1, x.shape[-1]), weight, bias).unflatten(0, x.shape[:-1])


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight)
        return matmul_transposed(x.contiguous(), _operand(weight), bias)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if grad_outputs[0] is None:
            return None, None, None
        return one_by_one(lambda slope: _gradients(x, weight, slope, ctx.needs_input_grad), *grad_outputs)


def _gradients(x: Tensor, weight: Tensor, slope: Tensor, needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    of_bias = slope.sum(0) if needed[2] else None
    # gradients of gradients are asked for: products that autograd can trace
    if torch.is_grad_enabled():
        return slope @ weight, slope.t() @ x, of_bias
    x, slope = x.contiguous(), slope.contiguous()
    of_x = matmul_transposed(slope, _operand(weight.t())) if needed[0] else None
    if not needed[1]:
        return of_x, None, of_bias
    # a product needs one transposed copy: copy the narrower operand
    if slope.shape[1] < x.shape[1]:
        return of_x, matmul_transposed(_transposed(slope), x.t()), of_bias
    return of_x, matmul_transposed(_transposed(x), slope.t()).t(), of_bias


def _transposed(x: Matrix) -> Float[Tensor, "inner rows"]:
    """Contiguous transpose of a contiguous matrix."""
    large = x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() >= MIN_ELEMENTS
    if large and build.unavailable_reason("transpose") is None:
        return transposed_copy(x)
    return x.t().contiguous()


def _operand(b: Matrix) -> Matrix:
    return b if b.is_contiguous() or b.t().is_contiguous() else b.contiguous()


def gradient_type(type: torch.dtype) -> torch.dtype:
    """Return the operand type for products in gradients of inputs of this type: bfloat16 where that is faster.

    Operands are then rounded like the inputs; sums are accumulated in float32 all the same.
    """
    if type == torch.bfloat16 and bfloat16_is_faster():
        return type
    return torch.promote_types(type, torch.float32)


def takes_onednn(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN multiplies these: float32 on a CPU where it is faster, unless it is disabled in PyTorch."""
    known = a.dtype == b.dtype == torch.float32 and a.device.type == "cpu" and a.numel() and b.numel()
    # torch.compile has its own choice
    return bool(known) and not torch.compiler.is_compiling() and torch._C._get_mkldnn_enabled() and onednn_is_faster()


def has_wide_vectors() -> bool:
    """Whether PyTorch uses AVX-512; ATEN_CPU_CAPABILITY may keep it from instructions that the processor has."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def blas_is_fast() -> bool:
    """Whether PyTorch's BLAS, Intel's MKL, is nearly as fast as the processor: with AVX2, or AVX-512 on Intel's.

    Other processors than x86 have other names of their vectors, and another BLAS.
    """
    vectors = torch.backends.cpu.get_cpu_capability()
    return vectors == "AVX2" or (vectors == "AVX512" and not onednn_is_faster())


def has_512_bit_units() -> bool:
    """Whether PyTorch uses AVX-512 on a processor of AMD's that computes 512 bits at once (Zen 5).

    Zen 4 takes each such instruction in two halves. What tells them apart is VP2INTERSECT, which Zen 4 lacks.
    """
    return has_wide_vectors() and bool(torch.cpu.get_capabilities().get("avx512_vp2intersect"))


def bfloat16_is_faster() -> bool:
    """Whether rounding to bfloat16 and multiplying beats float32: where the processor multiplies bfloat16."""
    capable = torch.cpu.get_capabilities()
    return bool(
        (has_wide_vectors() and (capable.get("avx512_bf16") or capable.get("amx_bf16"))) or capable.get("bf16")
    )


def multiplies_tiles() -> bool:
    """Whether PyTorch multiplies whole tiles of bfloat16 by one instruction (AMX)."""
    usable = torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
    return usable and has_wide_vectors() and bool(torch.cpu.get_capabilities().get("amx_bf16"))


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies float32 matrices faster than PyTorch's BLAS: on AMD's processors.

    That BLAS is Intel's MKL, which takes AVX2 there: with 512-bit units (Zen 5) oneDNN is 2.2 to 2.7 times as fast,
    else 1.0 to 1.3 times (Zen 2 to 4; measured on EPYCs).
    """
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return str(torch.cpu.get_capabilities().get("cpu_name", "")).startswith("AMD")


def _onednn(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
