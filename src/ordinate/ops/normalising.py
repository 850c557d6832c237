"""Attention weights from scores by other normalisers than the softmax: sigmoid and Sinkhorn."""

import torch
from jaxtyping import Bool
from torch import Tensor

from ordinate.core.shapes import Weights

Mask = Bool[Tensor, "#b #h i j"]


def sigmoid(scores: Weights, visible: Mask, offset: float | None = None) -> Weights:
    """Sigmoid attention: each weight depends on its own score only.

        W = sigmoid(scores - log n),    n: number of visible keys of the query

    Args:
        scores: attention scores.
        visible: the attention mask; True where a query may attend to a key.
        offset: added to the scores; None: -log n, so that weights sum to about one where scores are small.
    Source: Ramapuram et al. 2024, https://arxiv.org/abs/2409.04431.
    """
    seen = visible.sum(-1, keepdim=True).clamp(min=1)
    added = -seen.to(scores.dtype).log() if offset is None else offset
    return (scores + added).sigmoid().masked_fill(~visible, 0.0)


def sinkhorn(scores: Weights, visible: Mask, divisions: int) -> Weights:
    """Sinkhorn attention: rows sum to one, and columns approximately so (a doubly stochastic matrix).

        W = exp(scores); rows, columns, rows ... of W are divided by their sums

    One division is the softmax.

    Args:
        scores: attention scores.
        visible: the attention mask; True where a query may attend to a key.
        divisions: number of normalisations, rows first.
    Source: Sander et al. 2022, https://arxiv.org/abs/2110.11773.
    """
    # finite, not -inf: fully masked rows and columns would be NaN; divided by 4, so that differences do not overflow
    nothing = torch.finfo(scores.dtype).min / 4
    for division in range(divisions):
        scores = scores.masked_fill(~visible, nothing)
        scores = scores - scores.logsumexp(-2 if division % 2 else -1, keepdim=True)
    return scores.exp().masked_fill(~visible, 0.0)
