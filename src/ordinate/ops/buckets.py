"""Sort distances into buckets that grow with the distance."""

import math

import torch
from jaxtyping import Int, Real
from torch import Tensor


def log_buckets(
    offset: Real[Tensor, "*shape"], *, buckets: int, max_distance: int, both_sides: bool
) -> Int[Tensor, "*shape"]:
    """The bucket of each offset: near ones get a bucket each, far ones share logarithmically wider buckets.

        n < E:   bucket(n) = n                                                         E = buckets / 2
        n >= E:  bucket(n) = min(E + floor(log(n / E) / log(max_distance / E) * (buckets - E)), buckets - 1)

    Looking back only, n = max(offset, 0). On both sides, each side has half of the buckets, n = |offset|, and keys
    in the future (offset < 0) use the second half.

    Args:
        offset: query position minus key position [tokens]; fractions round towards zero.
        buckets: how many buckets.
        max_distance: from this distance on all share the last bucket [tokens].
        both_sides: whether keys in the future have buckets of their own.

    Source: Raffel et al. 2020, T5, https://arxiv.org/abs/1910.10683, and its published code. There the sign is key
        minus query. Departs: the logarithm is taken in float64, so that no bucket edge moves with the type.
    """
    size = buckets // 2 if both_sides else buckets
    future = (offset < 0) if both_sides else torch.zeros_like(offset, dtype=torch.bool)
    distance = (offset.abs() if both_sides else offset.clamp(min=0)).long()
    exact = size // 2
    grown = torch.log(distance.clamp(min=1).double() / exact) / math.log(max_distance / exact) * (size - exact)
    # a logarithm that should be whole may come out a rounding error below it
    far = (exact + (grown + 1e-9).long()).clamp(max=size - 1)
    return torch.where(distance < exact, distance, far) + future * size


def signed_log_buckets(offset: Int[Tensor, "*shape"], *, buckets: int, max_distance: int) -> Int[Tensor, "*shape"]:
    """The bucket of each offset, with its sign: near ones keep their number, far ones share logarithmic buckets.

        n <= M:  bucket = offset                                                          M = buckets / 2
        n > M:   bucket = sign(offset) * (M + ceil(log(n / M) / log((max_distance - 1) / M) * (M - 1)))

    Buckets go on beyond `max_distance`; who looks rows up clips them.

    Args:
        offset: query position minus key position [tokens], n of either sign.
        buckets: how many buckets each side has up to max_distance.
        max_distance: one more than the distance that falls into the last of them [tokens].

    Source: the published code of DeBERTa, version 2, https://github.com/microsoft/DeBERTa. Departs: the logarithm is
        taken in float64.
    """
    middle = buckets // 2
    distance = offset.abs()
    grown = torch.log(distance.clamp(min=1).double() / middle) / math.log((max_distance - 1) / middle) * (middle - 1)
    # a logarithm that should be whole may come out a rounding error above it
    far = offset.sign() * (middle + torch.ceil(grown - 1e-9).long())
    return torch.where(distance <= middle, offset, far)
