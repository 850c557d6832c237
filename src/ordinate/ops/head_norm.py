"""Root mean square normalisation of each head with an output gate, the output stage of recent linear attention."""

from collections.abc import Callable

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import silu

from ordinate.core.shapes import Outputs, Tokens
from ordinate.core.tensors import at_least_float32


def head_norm(
    y: Outputs,
    weight: Float[Tensor, " e"] | None,
    gate: Tokens | None,
    epsilon: float = 1e-5,
    activation: Callable[[Tensor], Tensor] = silu,
) -> Tokens:
    """Normalise each head, multiply by the weight and by the gate, and concatenate the heads.

        y / sqrt(mean of y^2 + epsilon) * weight * f(gate)

    Args:
        y: outputs of the heads, in float32 or wider.
        weight: a factor of each channel, shared by the heads; None: 1.
        gate: gates before the activation, heads concatenated; None: no gate.
        epsilon: added to the mean square.
        activation: f.
    """
    y = rms_norm(y, epsilon)
    if weight is not None:
        y = y * at_least_float32(weight)
    rows = rearrange(y, "b h n e -> b n (h e)")
    return rows if gate is None else rows.to(gate.dtype) * activation(gate)


def rms_norm(x: Float[Tensor, "*rest channels"], epsilon: float = 1e-5) -> Float[Tensor, "*rest channels"]:
    """Divide each vector by its root mean square, x / sqrt(mean of x^2 + epsilon)."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)


def unit_norm(x: Outputs, epsilon: float = 1e-6) -> Outputs:
    """Divide each vector by its norm, x / sqrt(sum of x^2 + epsilon); 0 stays 0, with a finite gradient."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + epsilon)
