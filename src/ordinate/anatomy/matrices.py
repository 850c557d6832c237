"""The matrices of linear maps, found by trying them: no names of layers, no layouts of fused tensors."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.shapes import Tokens

Maps = Callable[[Tokens], Sequence[Float[Tensor, "b h n d"]]]
"""What a linear map makes of tokens, head by head; several at once."""


def matrices(maps: Maps, like: Float[Tensor, "width"], rows: int = 512) -> list[Float[Tensor, "h width d"]] | None:
    """The matrices W of maps x -> x W + b, head by head.

    Row r of W is what the map makes of the unit vector r, less what it makes of 0.

    Args:
        maps: the maps.
        like: a vector of the width, type and device of what enters.
        rows: tokens that the maps are given at once.

    Returns:
        The matrices; None: the maps are not linear.
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


def gain(norm: nn.Module | None, like: Float[Tensor, "width"]) -> Float[Tensor, "width"] | None:
    """What a norm multiplies each column by, after making it of one length.

    Args:
        norm: a LayerNorm or RMSNorm of whatever make; None: there is none.
        like: a vector of its width, type and device.

    Returns:
        One number for each column; None: it is no such norm.
    """
    if norm is None:
        return torch.ones_like(like)
    generator = torch.Generator().manual_seed(0)
    tried = torch.randn(1, 16, len(like), generator=generator, dtype=torch.float64).to(like) * 100
    # what is added afterwards cancels
    out, wide = (norm(tried) - norm(-tried)) / 2, tried.double()
    # squares of these are no numbers in float16
    for centred in (wide - wide.mean(-1, keepdim=True), wide):
        unit = centred / centred.square().mean(-1, keepdim=True).sqrt()
        scale = (out * unit).sum((0, 1)) / unit.square().sum((0, 1))
        if _close(out, (scale * unit).to(out.dtype)):
            return scale.to(like.dtype)
    return None


def _filled(rows: Float[Tensor, "some width"], count: int) -> Tokens:
    """The rows as one text of so many tokens."""
    return torch.cat([rows, rows.new_zeros(count - len(rows), rows.shape[1])])[None]


def _close(x: Tensor, y: Tensor) -> bool:
    # norms add a little to what they divide by
    return bool((x - y).abs().max() <= max(64 * torch.finfo(x.dtype).eps, 1e-6) * y.abs().max())
