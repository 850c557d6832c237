"""The matrices of linear maps, found by trying them: no names of layers, no layouts of fused tensors."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.shapes import Tokens

Maps = Callable[[Tokens], Sequence[Float[Tensor, "b h n d"]]]
"""What a linear map makes of tokens, head by head; several at once."""


def matrices(maps: Maps, like: Float[Tensor, "width"], *, rows: int = 512) -> list[Float[Tensor, "h width d"]] | None:
    """The matrices W of maps x -> x W + b, head by head.

    Row r of W is what the map makes of the unit vector r, less what it makes of 0.

    Args:
        maps: the maps.
        like: a vector of the width, type and device of what enters.
        rows: unit vectors tried at once; a map may be given fewer tokens.

    Returns:
        The matrices; None: the maps are not linear.
    """
    width = len(like)
    eye = torch.eye(width, dtype=like.dtype, device=like.device)
    zero = [part[:, :, :1] for part in maps(like.new_zeros(1, min(rows, width), width))]
    parts = [maps(_filled(eye[first : first + rows], min(rows, width))) for first in range(0, width, rows)]
    found = [torch.cat([part[which][0] for part in parts], 1)[:, :width] - none[0] for which, none in enumerate(zero)]
    generator = torch.Generator().manual_seed(0)
    tried = torch.randn(min(rows, width), width, generator=generator).to(like)
    seen = maps(tried[None])
    for matrix, none, out in zip(found, zero, seen, strict=True):
        expected = tried @ matrix + none[0]
        if not torch.allclose(out[0], expected, rtol=0.0, atol=float(_tolerance(out) * out.abs().max())):
            return None
    return found


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
    tried = torch.randn(2, 1, len(like), generator=generator, dtype=torch.float64).to(like) * 100
    # what is added afterwards cancels
    out = (norm(tried) - norm(-tried)) / 2
    for length in (tried - tried.mean(-1, keepdim=True), tried):
        ratio = out / (length / length.square().mean(-1, keepdim=True).sqrt())
        if torch.allclose(ratio[0], ratio[1], rtol=0.0, atol=float(8 * _tolerance(out) * ratio.abs().max())):
            return ratio.mean((0, 1))
    return None


def _filled(rows: Float[Tensor, "some width"], count: int) -> Tokens:
    """The rows as one text of so many tokens."""
    return torch.cat([rows, rows.new_zeros(count - len(rows), rows.shape[1])])[None]


def _tolerance(x: Tensor) -> float:
    return 64 * torch.finfo(x.dtype).eps
