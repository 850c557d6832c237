"""Count what lies between, and read a table at a fraction of a row."""

import torch
from jaxtyping import Float, Real
from torch import Tensor


def counts_from(gates: Float[Tensor, "b h i j"], pos: Real[Tensor, "#b j"]) -> Float[Tensor, "b h i j"]:
    """For each key, the sum of the gates of all keys that stand where it stands or after it.

        count(i, j) = sum of gates(i, t) over all t with p_t >= p_j

    Order in memory does not matter, only positions do.

    Args:
        gates: how much each key counts for each query; 0 where it is hidden.
        pos: where each key stands [tokens].
    """
    ordered, order = pos.contiguous().sort(stable=True)
    first = torch.searchsorted(ordered, pos.contiguous())
    order, first = (index[:, None, None].expand(gates.shape) for index in (order, first))
    return gates.gather(-1, order).flip(-1).cumsum(-1).flip(-1).gather(-1, first)


def read_between(products: Float[Tensor, "b h i rows"], place: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i j"]:
    """The number at a fraction of a row: on the straight line between the rows below and above.

    Args:
        products: a number for each query and row; two rows or more.
        place: from 0 to rows - 1 [rows].
    """
    # a place that is no number must not become a row
    below = place.detach().floor().long().clamp(0, products.shape[-1] - 2)
    return torch.lerp(products.gather(-1, below), products.gather(-1, below + 1), place - below)
