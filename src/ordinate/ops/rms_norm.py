"""Root mean square normalisation as a layer, with a fast path on CPUs."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.ops.native import build, scan
from ordinate.ops.native import rms_norm as native
from ordinate.ops.native.plain_tensors import are_plain, is_observed

Rows = Float[Tensor, "*any width"]


class RMSNorm(nn.RMSNorm):
    """`torch.nn.RMSNorm` with a fast path: x / sqrt(mean of x^2 + eps) * weight over the last axis.

    On CPUs in float32 it is one pass over memory in each direction, in C++ where it can be built; PyTorch composes
    its gradient of a dozen operations there.

    Source: Zhang and Sennrich 2019, equation 4, https://arxiv.org/abs/1910.07467.
    """

    def forward(self, x: Rows) -> Rows:
        """Return the normalised rows."""
        if not self._fits(x):
            return super().forward(x)
        epsilon = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        return native.rms_norm(self._plain, x, self.weight, epsilon)

    def _plain(self, x: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, self.normalized_shape, weight, self.eps)

    def _fits(self, x: Tensor) -> bool:
        # not under torch.compile, which would compile for each limit of the sizes
        if torch.compiler.is_compiling():
            return False
        enough = x.dtype == torch.float32 and x.numel() >= scan.MIN_ELEMENTS and x.is_contiguous()
        # without learned weights there is none to multiply by
        if not enough or self.weight is None or self.normalized_shape != x.shape[-1:]:
            return False
        return are_plain(x, self.weight) and not is_observed(x) and build.unavailable_reason("rms_norm") is None
