"""Norms of queries and keys."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import nn

from ordinate.core.shapes import Queries
from ordinate.ops.rms_norm import RMSNorm

QKNorm = Literal["rms", "layer", "layer_per_head", "nonparametric_rms"]
"""Kind of norm of queries and keys."""


def clipped(x: Queries, limit: float | None) -> Queries:
    """Return vectors whose channels are clipped to [-limit, limit]; None: as they are."""
    return x if limit is None else x.clamp(-limit, limit)


class AcrossHeadsNorm(RMSNorm):
    """RMSNorm of queries or keys over the channels of all heads together (OLMo 2).

    Args:
        width: channels of all heads.
        limit: the magnitude to which the normalised ones are clipped (OLMoE); None: they are not.
        options: of `RMSNorm`.
    """

    def __init__(self, width: int, *, limit: float | None = None, **options: Any) -> None:
        super().__init__(width, **options)
        self.limit = limit

    def forward(self, x: Queries) -> Queries:
        """Return the normalised queries or keys."""
        rows = x.transpose(1, 2)
        out = super().forward(rows.flatten(2)).unflatten(2, rows.shape[2:]).transpose(1, 2)
        return clipped(out, self.limit)


class PerHeadLayerNorm(nn.Module):
    """LayerNorm of queries or keys without a bias, with weights of its own for each head (StableLM).

    Args:
        head_width: channels of a head.
        heads: number of heads.
        eps: epsilon of the norm.
    """

    def __init__(self, head_width: int, heads: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(heads, head_width)), eps

    def forward(self, x: Queries) -> Queries:
        """Return the normalised queries or keys."""
        return nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps) * self.weight[:, None]


OTHER_NORMS: Mapping[QKNorm, Callable[[int, int, float], nn.Module]] = {
    "layer": lambda head_width, heads, eps: nn.LayerNorm(head_width, eps=eps),
    "layer_per_head": PerHeadLayerNorm,
    "nonparametric_rms": lambda head_width, heads, eps: RMSNorm(head_width, eps=eps, elementwise_affine=False),
}
"""What makes the norm of each other kind, from the channels of a head, the number of heads, and epsilon."""
