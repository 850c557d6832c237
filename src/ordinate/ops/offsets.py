"""Sines and cosines of the offset between a query and a key."""

import torch
from jaxtyping import Float, Real
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.ops.rotate import Layout, join, rotate, split
from ordinate.ops.waves import frequencies


def wave_scores(
    x: Float[Tensor, "b h i width"], where: Geometry, *, theta: float, layout: Layout, clamp: float | None = None
) -> Float[Tensor, "b h i j"]:
    """The product of each vector with the waves of its pair's offset: x_i . R(p_i - p_j).

        R(t) = [sin(w_m t), cos(w_m t)],   w_m = theta^(-2m / width),   m = 0 .. width/2 - 1

    No waves are made for pairs. The sine and cosine of a difference are products of those of its two positions, so
    rotating x_i by p_i leaves a product with the waves of p_j: any positions are served, whole or not.

    Args:
        x: weights of the waves, for each query.
        where: the positions.
        theta: base of the wavelengths.
        layout: `half` has all sines before all cosines, `interleaved` has each pair side by side.
        clamp: offsets farther than this count as this far; None: all as they are [tokens].
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    speeds = torch.tensor(frequencies(x.shape[-1], theta, "vaswani", "paper"), dtype=torch.float64, device=x.device)
    sines, cosines = split(x.to(wide), layout)
    turned = rotate(join(cosines, -sines, "half"), where.q_pos[..., :1].double() * speeds, "half")
    angles = where.k_pos[..., :1].double() * speeds
    scores = turned @ torch.cat([angles.cos(), angles.sin()], -1)[:, None].to(wide).mT
    if clamp is None:
        return scores
    still = clamp * speeds
    rising, level = sines @ still.sin().to(wide), cosines @ still.cos().to(wide)
    past, future = (level + rising)[..., None], (level - rising)[..., None]
    offset = where.offset[..., 0][:, None]
    return torch.where(offset > clamp, past, torch.where(offset < -clamp, future, scores))


def waves(
    offset: Real[Tensor, " n"], width: int, *, theta: float, layout: Layout, clamp: float | None = None
) -> Float[Tensor, "n width"]:
    """The waves of each offset, R(t), in float64.

    Args:
        offset: query position minus key position [tokens].
        width: how many waves.
        theta: base of the wavelengths.
        layout: as in `wave_scores`.
        clamp: likewise [tokens].
    """
    speeds = torch.tensor(frequencies(width, theta, "vaswani", "paper"), dtype=torch.float64, device=offset.device)
    t = offset.double() if clamp is None else offset.double().clamp(-clamp, clamp)
    angles = t[:, None] * speeds
    return join(angles.sin(), angles.cos(), layout)
