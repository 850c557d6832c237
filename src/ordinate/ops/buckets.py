"""Relative position buckets of T5 and DeBERTa: one bucket per small offset, logarithmic buckets for large ones."""

import math

import torch
from jaxtyping import Int, Real
from torch import Tensor

from ordinate.core.tensors import in_float64, on_device


def log_buckets(
    offset: Real[Tensor, "*shape"], *, buckets: int, max_distance: int, bidirectional: bool
) -> Int[Tensor, "*shape"]:
    """T5's relative position bucket of each offset: exact for small offsets, logarithmic for large ones.

        n < E:   bucket(n) = n                                                         E = buckets / 2
        n >= E:  bucket(n) = min(E + floor(log(n / E) / log(max_distance / E) * (buckets - E)), buckets - 1)

    Causal (`both_sides` false): n = max(offset, 0). Bidirectional: each direction has half of the buckets,
    n = |offset|, and keys in the future (offset < 0) use the second half.

    Args:
        offset: query position minus key position [tokens]; fractions round towards zero.
        buckets: number of buckets.
        max_distance: all distances from this one on share the last bucket [tokens].
        bidirectional: whether keys in the future have their own buckets.

    Source: Raffel et al. 2020, T5, https://arxiv.org/abs/1910.10683, and its published code. There the sign is key
        minus query. Departs: the logarithm is taken in float64, so that no bucket edge moves with the dtype.
    """
    size = buckets // 2 if bidirectional else buckets
    future = (offset < 0) if bidirectional else torch.zeros_like(offset, dtype=torch.bool)
    # a position in floating point may be larger than an integer can be
    distance = (offset.abs() if bidirectional else offset.clamp(min=0)).clamp(max=max_distance).long()
    # a graph is for any number of offsets
    if torch.compiler.is_compiling() or distance.numel() <= max_distance:
        return _bucket(distance, size, max_distance) + future * size
    # more offsets than there are different distances: each of those is computed once
    known = _bucket(torch.arange(max_distance + 1, device=distance.device), size, max_distance)
    return known[distance] + future * size


def _bucket(distance: Int[Tensor, "*shape"], size: int, max_distance: int) -> Int[Tensor, "*shape"]:
    """Bucket of each distance among `size` of one direction."""
    exact = size // 2
    grown = torch.log(in_float64(distance.clamp(min=1)) / exact) / math.log(max_distance / exact) * (size - exact)
    # at a bucket edge the logarithm is a whole number, which rounding can leave just below it
    far = (exact + on_device(grown + 1e-9, torch.int64, distance.device)).clamp(max=size - 1)
    return torch.where(distance < exact, distance, far)


def signed_log_buckets(offset: Int[Tensor, "*shape"], *, buckets: int, max_distance: int) -> Int[Tensor, "*shape"]:
    """DeBERTa's signed bucket of each offset: small offsets are unchanged, large ones share logarithmic buckets.

        n <= M:  bucket = offset                                                          M = buckets / 2
        n > M:   bucket = sign(offset) * (M + ceil(log(n / M) / log((max_distance - 1) / M) * (M - 1)))

    Buckets continue beyond `max_distance`; the caller clips them to its table.

    Args:
        offset: query position minus key position [tokens], n of either sign.
        buckets: number of buckets on each side up to max_distance.
        max_distance: one more than the distance that falls into the last of them [tokens].

    Source: the published code of DeBERTa, version 2, https://github.com/microsoft/DeBERTa. Departs: the logarithm is
        taken in float64.
    """
    middle = buckets // 2
    distance = offset.abs()
    base = math.log((max_distance - 1) / middle) if max_distance > 1 else -math.inf
    grown = torch.log(in_float64(distance.clamp(min=1)) / middle) / base * (middle - 1)
    # at a bucket edge the logarithm is a whole number, which rounding can leave just above it
    far = offset.sign() * (middle + on_device(torch.ceil(grown - 1e-9), torch.int64, offset.device))
    return torch.where(distance <= middle, offset, far)
