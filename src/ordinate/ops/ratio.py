"""Weighted means from sums of weights."""

import torch

from ordinate.shapes import Outputs, Totals


def ratio(sums: Outputs, total: Totals) -> Outputs:
    """Sums of weighted values over the total weight; 0, with gradient 0, where that is nothing."""
    nothing = total < torch.finfo(total.dtype).tiny
    return (sums / total.masked_fill(nothing, 1.0)[..., None]).masked_fill(nothing[..., None], 0.0)
