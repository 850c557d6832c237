"""Sinusoidal embeddings of offsets, and their products with queries without an embedding per pair."""

import torch
from jaxtyping import Float, Real
from torch import Tensor

from ordinate.core.devices import numbers_beside
from ordinate.core.geometry import Geometry
from ordinate.core.tensors import in_float64, on_device
from ordinate.ops.rotate import Layout, join_pairs, rotate, split_pairs
from ordinate.ops.sinusoids import frequencies


def sinusoidal_offset_scores(
    x: Float[Tensor, "b h i width"], where: Geometry, *, theta: float, layout: Layout, clamp: float | None = None
) -> Float[Tensor, "b h i j"]:
    """Product of each vector with the sinusoidal embedding of its offset to each key: x_i . R(p_i - p_j).

        R(t) = [sin(w_m t), cos(w_m t)],   w_m = theta^(-2m / width),   m = 0 .. width/2 - 1

    No embedding of size queries x keys is made: by the angle difference identities, rotating x_i by p_i leaves a
    product with the sinusoids of p_j. Positions may be fractional.

    Args:
        x: weights of the sinusoids, for each query.
        where: the positions.
        theta: base of the wavelengths.
        layout: `half`: all sines before all cosines; `interleaved`: each sine before its cosine.
        clamp: largest |offset|, at which farther ones are clamped; None: no limit [tokens].
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    q_place, k_place = (in_float64(pos[..., :1]) for pos in (where.q_pos, where.k_pos))
    speeds = _speeds(x.shape[-1], theta, k_place)
    sines, cosines = split_pairs(x.to(wide), layout)
    turned = rotate(join_pairs(cosines, -sines, "half"), q_place * speeds, "half")
    angles = k_place * speeds
    scores = turned @ on_device(torch.cat([angles.cos(), angles.sin()], -1)[:, None], wide, x.device).mT
    if clamp is None:
        return scores
    still = clamp * speeds
    rising, level = sines @ on_device(still.sin(), wide, x.device), cosines @ on_device(still.cos(), wide, x.device)
    past, future = (level + rising)[..., None], (level - rising)[..., None]
    offset = where.offset[..., 0][:, None]
    return torch.where(offset > clamp, past, torch.where(offset < -clamp, future, scores))


def offset_sinusoids(
    offset: Real[Tensor, " n"], width: int, *, theta: float, layout: Layout, clamp: float | None = None
) -> Float[Tensor, "n width"]:
    """Sinusoidal embedding R(t) of each offset, in float64 (see `core.tensors.in_float64`).

    Args:
        offset: query position minus key position [tokens].
        width: columns of the embedding.
        theta: base of the wavelengths.
        layout: as in `sinusoidal_offset_scores`.
        clamp: as in `sinusoidal_offset_scores` [tokens].
    """
    t = in_float64(offset) if clamp is None else in_float64(offset).clamp(-clamp, clamp)
    angles = t[:, None] * _speeds(width, theta, t)
    return join_pairs(angles.sin(), angles.cos(), layout)


def _speeds(width: int, theta: float, beside: Tensor) -> Float[Tensor, " pairs"]:
    return numbers_beside(beside, frequencies(width, theta, "vaswani", "paper"), torch.float64)
