"""Contextual positions of CoPE (Golovneva et al., 2024): sums of gates, and interpolation at fractional positions."""

import torch
from jaxtyping import Float, Real
from torch import Tensor


def contextual_positions(gates: Float[Tensor, "b h i j"], pos: Real[Tensor, "#b j"]) -> Float[Tensor, "b h i j"]:
    """Contextual position of each key: the sum of the gates of all keys at its position or later.

        count(i, j) = sum of gates(i, t) over all t with p_t >= p_j

    Only positions matter, not the order of keys in memory.

    Args:
        gates: gate of each key for each query; 0 where it is masked.
        pos: position of each key [tokens].
    """
    ordered, order = pos.contiguous().sort(stable=True)
    first = torch.searchsorted(ordered, pos.contiguous())
    order, first = (index[:, None, None].expand(gates.shape) for index in (order, first))
    return gates.gather(-1, order).flip(-1).cumsum(-1).flip(-1).gather(-1, first)


def interpolate_rows(
    products: Float[Tensor, "b h i rows"], place: Float[Tensor, "b h i j"]
) -> Float[Tensor, "b h i j"]:
    """Interpolate linearly between two rows at fractional row indices.

    Args:
        products: a value for each query and row; at least two rows.
        place: fractional index from 0 to rows - 1.
    """
    # NaN converts to an arbitrary integer: the clamp keeps the gather in bounds, and lerp returns NaN
    below = place.detach().floor().long().clamp(0, products.shape[-1] - 2)
    return torch.lerp(products.gather(-1, below), products.gather(-1, below + 1), place - below)
