"""Kinds of norms of a model."""

from typing import Literal

from torch import nn

from ordinate.ops.layer_norm import ZeroCentredLayerNorm
from ordinate.ops.rms_norm import RMSNorm

Norm = Literal["rms", "layer", "nonparametric", "nonparametric_rms"]
"""Kind of norms: RMSNorm, LayerNorm, and both without weights."""
NORMS: tuple[Norm, ...] = ("rms", "layer", "nonparametric", "nonparametric_rms")
RMS_NORMS = frozenset({"rms", "nonparametric_rms"})
"""Those that divide by the root mean square."""
PARAMETRIC = frozenset({"rms", "layer"})
"""Those with weights."""


def make_norm(kind: Norm, width: int, eps: float | None, *, zero_centred: bool, bias: bool) -> nn.Module:
    """Build a norm.

    Args:
        kind: kind of norm.
        width: number of columns.
        eps: epsilon; None: PyTorch's default.
        zero_centred: whether its weights are added to 1.
        bias: whether a LayerNorm with weights has a bias.
    """
    learned = kind in PARAMETRIC
    if kind in RMS_NORMS:
        return RMSNorm(width, eps=eps, elementwise_affine=learned, zero_centred=zero_centred)
    made = ZeroCentredLayerNorm if zero_centred else nn.LayerNorm
    return made(width, eps=1e-5 if eps is None else eps, elementwise_affine=learned, bias=bias)
