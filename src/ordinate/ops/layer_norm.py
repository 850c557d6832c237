"""LayerNorm whose weights are added to 1."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.tensors import at_least_float32

Rows = Float[Tensor, "*any width"]


class ZeroCentredLayerNorm(nn.LayerNorm):
    """LayerNorm with the factor 1 + weight, whose weights start at 0: (x - mean) / std * (1 + weight) + bias.

    Weight decay draws the factor to 1. In 16 bits the sum and the norm are computed in float32 and the result is
    rounded: 1 + weight in 16 bits would lose digits of a small weight.

    Args: those of `torch.nn.LayerNorm`.
    Source: LayerNorm1p of Nemotron-4, Parmar et al. 2024, https://arxiv.org/abs/2402.16819; `zero_centered_gamma` of
        NVIDIA Transformer Engine, https://github.com/NVIDIA/TransformerEngine.
    """

    def reset_parameters(self) -> None:
        """Set the weights to those of a factor of 1."""
        super().reset_parameters()
        if self.weight is not None:
            nn.init.zeros_(self.weight)

    def forward(self, input: Rows) -> Rows:
        """Return the normalised rows."""
        wide = at_least_float32(input)
        bias = None if self.bias is None else self.bias.to(wide.dtype)
        factor = 1 + self.weight.to(wide.dtype)
        return torch.nn.functional.layer_norm(wide, self.normalized_shape, factor, bias, self.eps).to(input.dtype)
