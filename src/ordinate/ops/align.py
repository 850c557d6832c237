"""Move the tokens of each row so that the first one stands where a fixed table begins."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Rows = Float[Tensor, "b n *rest"]
Skipped = Int[Tensor, "b"]


def skipped(real: Bool[Tensor, "b n"]) -> Skipped:
    """How much padding stands before the tokens of each row."""
    return (~real).sum(1)


def shifted(x: Rows, by: Skipped) -> Rows:
    """Each row turned to the left by so many places; by a negative number, to the right.

    out[b, i] = x[b, (i + by_b) mod n]
    """
    if not x.shape[1]:
        return x
    place = (torch.arange(x.shape[1], device=x.device) + by[:, None]) % x.shape[1]
    return x[torch.arange(x.shape[0], device=x.device)[:, None], place]
