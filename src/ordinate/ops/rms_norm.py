"""Root mean square normalisation as a layer, with a fast path on CPUs."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.tensors import at_least_float32
from ordinate.ops.native import build, scan
from ordinate.ops.native import rms_norm as native
from ordinate.ops.native.plain_tensors import are_plain, is_observed

Rows = Float[Tensor, "*any width"]


class RMSNorm(nn.RMSNorm):
    """`torch.nn.RMSNorm` with a fast path: x / sqrt(mean of x^2 + eps) * weight over the last axis.

    On CPUs in float32 it is one pass over memory in each direction, in C++ where it can be built; PyTorch composes
    its gradient of a dozen operations there.

    Args:
        given, options: those of `torch.nn.RMSNorm`.
        zero_centred: whether the factor is 1 + weight, with weights that start at 0, so that weight decay draws the
            factor to 1. In 16 bits the sum and the norm are computed in float32 and the result is rounded: 1 + weight
            in 16 bits would lose digits of a small weight.
    Source: Zhang and Sennrich 2019, equation 4, https://arxiv.org/abs/1910.07467; zero-centred as in Gemma,
        https://github.com/google-deepmind/gemma.
    """

    def __init__(self, *given: Any, zero_centred: bool = False, **options: Any) -> None:
        # before the parent's, which sets the first weights
        self.zero_centred = zero_centred
        super().__init__(*given, **options)

    def reset_parameters(self) -> None:
        """Set the weights to those of a factor of 1."""
        if self.weight is not None:
            nn.init.constant_(self.weight, 0.0 if self.zero_centred else 1.0)

    def forward(self, x: Rows) -> Rows:
        """Return the normalised rows."""
        if self.weight is None or not self.zero_centred:
            return self._normalised(x, self.weight)
        return self._normalised(at_least_float32(x), 1 + at_least_float32(self.weight)).to(x.dtype)

    def extra_repr(self) -> str:
        """Return the options that the printed module shows."""
        return super().extra_repr() + (", zero_centred=True" if self.zero_centred else "")

    def _normalised(self, x: Tensor, weight: Tensor | None) -> Tensor:
        if weight is None or not self._fits(x, weight):
            return self._plain(x, weight)
        epsilon = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        return native.rms_norm(self._plain, x, weight, epsilon)

    def _plain(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return nn.functional.rms_norm(x, self.normalized_shape, weight, self.eps)

    def _fits(self, x: Tensor, weight: Tensor) -> bool:
        # not under torch.compile, which would compile for each limit of the sizes
        if torch.compiler.is_compiling():
            return False
        enough = x.dtype == torch.float32 and x.numel() >= scan.MIN_ELEMENTS and x.is_contiguous()
        # without learned weights there is none to multiply by
        if not enough or self.normalized_shape != x.shape[-1:]:
            return False
        return are_plain(x, weight) and not is_observed(x) and build.unavailable_reason("rms_norm") is None
