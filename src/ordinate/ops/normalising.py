"""Scores made to weights in other ways than by the softmax."""

import torch
from jaxtyping import Bool
from torch import Tensor

from ordinate.shapes import Weights

Seen = Bool[Tensor, "#b #h i j"]


def sigmoid(scores: Weights, visible: Seen, offset: float | None = None) -> Weights:
    """Weights that do not depend on each other.

        W = sigmoid(scores - log n),    n the keys that a query sees

    Args:
        scores: what the softmax would be taken of.
        visible: who sees whom.
        offset: what is added; None: -log n, so that weights sum to about one where scores are small.
    Source: Ramapuram et al. 2024, https://arxiv.org/abs/2409.04431.
    """
    seen = visible.sum(-1, keepdim=True).clamp(min=1)
    added = -seen.to(scores.dtype).log() if offset is None else offset
    return (scores + added).sigmoid().masked_fill(~visible, 0.0)


def sinkhorn(scores: Weights, visible: Seen, divisions: int) -> Weights:
    """Weights whose rows sum to one, and nearly their columns too.

        W = exp(scores); rows, columns, rows ... of W are divided by their sums

    One division is the softmax.

    Args:
        scores: what the softmax would be taken of.
        visible: who sees whom.
        divisions: how often they are divided, rows first.
    Source: Sander et al. 2022, https://arxiv.org/abs/2110.11773.
    """
    # finite, so that rows and columns that hold nothing divide by something
    nothing = torch.finfo(scores.dtype).min / 4
    for division in range(divisions):
        scores = scores.masked_fill(~visible, nothing)
        scores = scores - scores.logsumexp(-2 if division % 2 else -1, keepdim=True)
    return scores.exp().masked_fill(~visible, 0.0)
