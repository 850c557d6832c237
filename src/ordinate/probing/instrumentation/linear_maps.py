"""Matrices of linear maps from their outputs, independent of layer names and the layout of fused weights."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.shapes import Tokens

LinearMaps = Callable[[Tokens], Sequence[Float[Tensor, "b h n d"]]]
"""Linear maps of tokens to heads; returns the output of each map."""


def linear_map_matrices(
    maps: LinearMaps, like: Float[Tensor, "width"], rows: int = 512
) -> list[Float[Tensor, "h width d"]] | None:
    """Return the matrices W of maps x -> x W + b, by head.

    Row r of W is the image of the unit vector r, minus the image of 0. A random input checks that the map is linear.

    Args:
        maps: the maps.
        like: a vector with the width, dtype and device of the input.
        rows: tokens of one evaluation.

    Returns:
        The matrices; None if the maps are not linear.
    """
    width = len(like)
    eye = torch.eye(width, dtype=like.dtype, device=like.device)
    zero = [part[:, :, :1] for part in maps(like.new_zeros(1, rows, width))]
    parts = [maps(_filled(few, rows)) for few in eye.split(rows)]
    found = [torch.cat([part[which][0] for part in parts], 1)[:, :width] - none[0] for which, none in enumerate(zero)]
    generator = torch.Generator().manual_seed(0)
    tried = torch.randn(rows, width, generator=generator).to(like)
    ways = zip(found, zero, maps(tried[None]), strict=True)
    linear = all(_close(out[0], tried.to(matrix.dtype) @ matrix + none[0]) for matrix, none, out in ways)
    return found if linear else None


def norm_weight(norm: nn.Module | None, like: Float[Tensor, "width"]) -> Float[Tensor, "width"] | None:
    """Return the weight of a LayerNorm or RMSNorm, found from its outputs.

    Args:
        norm: a LayerNorm or RMSNorm of any implementation; None: no norm.
        like: a vector with its width, dtype and device.

    Returns:
        One number for each column; None if the module is neither norm.
    """
    if norm is None:
        return torch.ones_like(like)
    generator = torch.Generator().manual_seed(0)
    tried = torch.randn(1, 16, len(like), generator=generator, dtype=torch.float64).to(like) * 100
    # the difference cancels the bias
    out, wide = (norm(tried) - norm(-tried)) / 2, tried.double()
    # in float64, since squares of these values overflow in float16
    for centred in (wide - wide.mean(-1, keepdim=True), wide):
        unit = centred / centred.square().mean(-1, keepdim=True).sqrt()
        scale = (out * unit).sum((0, 1)) / unit.square().sum((0, 1))
        if _close(out, (scale * unit).to(out.dtype)):
            return scale.to(like.dtype)
    return None


def _filled(rows: Float[Tensor, "some width"], count: int) -> Tokens:
    """Pad rows with zeros to a text of `count` tokens."""
    return torch.cat([rows, rows.new_zeros(count - len(rows), rows.shape[1])])[None]


def _close(x: Tensor, y: Tensor) -> bool:
    # the epsilon of a norm causes a relative error of this order
    return bool((x - y).abs().max() <= max(64 * torch.finfo(x.dtype).eps, 1e-6) * y.abs().max())
