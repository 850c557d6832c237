"""Weighted means from sums of weights."""

import torch

from ordinate.shapes import Outputs, Totals


def ratio(sums: Outputs, total: Totals) -> Outputs:
    """Sums of weighted values over the total weight; 0, with gradient 0, where that is nothing."""
    return sums / total.masked_fill(total < torch.finfo(total.dtype).tiny, torch.inf)[..., None]
