"""Left-align left-padded batches, for mixers whose weights are indexed by absolute position."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Rows = Float[Tensor, "b n *rest"]
PaddingCounts = Int[Tensor, "b"]


def padding_counts(real: Bool[Tensor, "b n"]) -> PaddingCounts:
    """Count the padding tokens of each left-padded sequence."""
    return (~real).sum(1)


def roll_left(x: Rows, by: PaddingCounts) -> Rows:
    """Roll each sequence to the left by its own number of positions; to the right where that is negative.

    out[b, i] = x[b, (i + by_b) mod n]
    """
    if not x.shape[1]:
        return x
    place = (torch.arange(x.shape[1], device=x.device) + by[:, None]) % x.shape[1]
    return x[torch.arange(x.shape[0], device=x.device)[:, None], place]
