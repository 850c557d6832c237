"""Multiply pairs of channels by complex numbers, each head by its own."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.rotate import Layout, join, split


def turn(
    x: Float[Tensor, "b h n d"],
    cos: Float[Tensor, "#b #h n pairs"],
    sin: Float[Tensor, "#b #h n pairs"],
    layout: Layout,
) -> Float[Tensor, "b h n d"]:
    """Multiply each pair of channels of `x`, as a complex number, by another one.

        (a, b)  ->  (a cos - b sin,  b cos + a sin)

    It is a rotation where cos and sin belong to one angle. Done in float32 at least and returned in the type of `x`.
    Channels beyond the pairs stay as they are.

    Args:
        x: what to turn; d must be twice the number of pairs, or more.
        cos: the real parts, in float64.
        sin: the imaginary parts, in float64.
        layout: which channels pair up, as in `rotate`.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = cos.to(wide), sin.to(wide)
    turning, still = x.tensor_split((2 * cos.shape[-1],), -1)
    first, second = split(turning.to(wide), layout)
    turned = join(first * cos - second * sin, second * cos + first * sin, layout).to(x.dtype)
    return torch.cat([turned, still], -1) if still.shape[-1] else turned
