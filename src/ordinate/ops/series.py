"""Sums of waves."""

import torch
from jaxtyping import Float
from torch import Tensor


def weighted_sums(
    waves: Float[Tensor, "#b n kept"], weights: Float[Tensor, "h kept pairs"]
) -> Float[Tensor, "#b h n pairs"]:
    """For each head and pair, the sum of all waves, each times a weight, in the type of `waves`.

    The waves are added one by one: a matrix product may round a token otherwise among others than alone.
    """
    batch, tokens, _ = waves.shape
    total = waves.new_zeros(batch, weights.shape[0], tokens, weights.shape[2])
    for wave, weight in zip(waves.unbind(-1), weights.to(waves.dtype).unbind(1), strict=True):
        total = torch.addcmul(total, wave[:, None, :, None], weight[:, None])
    return total
