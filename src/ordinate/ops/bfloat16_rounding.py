"""Numbers rounded to the eight significant bits of bfloat16, and kept in a wider type."""

import math

import torch
from jaxtyping import Float32
from torch import Tensor

# of float32, without the bits that bfloat16 has too
DROPPED_BITS = 16


def rounded(x: Float32[Tensor, "*sizes"]) -> Float32[Tensor, "*sizes"]:
    """Return finite numbers rounded to the nearest bfloat16, ties to even, without gradients.

    In terms of bits: torch.compile leaves out a conversion to a narrower type and back.
    """
    bits = x.detach().view(torch.int32)
    last = (bits >> DROPPED_BITS) & 1
    # a sum that carries beyond the dropped bits rounds up
    half = (1 << DROPPED_BITS - 1) - 1
    return ((bits + half + last) >> DROPPED_BITS << DROPPED_BITS).view(torch.float32)


def rounded_number(x: float) -> float:
    """Return a number rounded likewise."""
    share, exponent = math.frexp(x)
    return math.ldexp(round(share * 2**8), exponent - 8)
