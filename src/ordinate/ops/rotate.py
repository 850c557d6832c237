"""Rotate pairs of channels by an angle."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Layout = Literal["half", "interleaved"]
# angles in float64, whatever the model's type: at position 2^24 a float32 angle is wrong by whole radians
Angles = Float[Tensor, "#b n pairs"]


def rotate(
    x: Float[Tensor, "b h n d"], angles: Angles, layout: Layout, magnitude: float = 1.0
) -> Float[Tensor, "b h n d"]:
    """Turn each pair of channels of `x` by its angle.

        (a, b)  ->  magnitude * (a cos t - b sin t,  b cos t + a sin t)

    Fewer pairs than half of the channels turn the first channels; the others stay as they are.

    The rotation is done in float32 at least and returned in the type of `x`.

    Args:
        x: what to rotate; d must be twice the number of pairs, or more.
        angles: one angle for each token and pair [radians].
        layout: which channels pair up: `half` pairs m with m + d/2 (GPT-NeoX, Llama in transformers),
            `interleaved` pairs 2m with 2m + 1 (the paper, GPT-J).
        magnitude: multiplies the channels that turn.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = ((magnitude * wave).to(wide)[:, None] for wave in (angles.cos(), angles.sin()))
    turning, still = x.tensor_split((2 * angles.shape[-1],), -1)
    first, second = split(turning.to(wide), layout)
    turned = join(first * cos - second * sin, second * cos + first * sin, layout).to(x.dtype)
    return torch.cat([turned, still], -1) if still.shape[-1] else turned


def split(x: Float[Tensor, "*any d"], layout: Layout) -> tuple[Tensor, Tensor]:
    """The first and the second channels of all pairs."""
    if layout == "half":
        first, second = x.chunk(2, -1)
        return first, second
    return x[..., 0::2], x[..., 1::2]


def join(first: Float[Tensor, "*any p"], second: Float[Tensor, "*any p"], layout: Layout) -> Tensor:
    """The channels again whose pairs these are."""
    if layout == "half":
        return torch.cat([first, second], -1)
    return torch.stack([first, second], -1).flatten(-2)
