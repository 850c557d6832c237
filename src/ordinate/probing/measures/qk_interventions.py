"""Interventions on queries and keys: swap, random rotation, (anti)symmetrised scores; symmetry of observed scores."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Keys, Queries, Values, Weights
from ordinate.ops.heads import repeat_for_heads
from ordinate.probing._adapter import MASKED_SCORE, Hooks, ModelAdapter
from ordinate.probing.measures.samples import Sample, by_layer
from ordinate.probing.measures.score_decomposition import level_rows

MAX_TOKENS = 64


class SwappedQK(Hooks):
    """Replaces queries by keys, keys by queries, or swaps them.

    Under grouped-query attention, keys are replaced by the mean of the queries of their group.

    Args:
        queries: replace queries by keys.
        keys: replace keys by queries.
    """

    def __init__(self, *, queries: bool, keys: bool) -> None:
        self.queries, self.keys = queries, keys

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        asked = repeat_for_heads(k.transpose(0, 1), q.shape[1]).transpose(0, 1) if self.queries else q
        return asked, q.unflatten(1, (k.shape[1], -1)).mean(2) if self.keys else k, v


class RandomlyRotatedQueries(Hooks):
    """Control: rotates the channels of queries randomly, so that their products with keys are by chance.

    Args:
        seed: seed of the rotations.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        generator = torch.Generator().manual_seed(1000 * self.seed + layer)
        drawn = torch.randn(q.shape[1], q.shape[3], q.shape[3], generator=generator, dtype=torch.float64)
        return q @ torch.linalg.qr(drawn).Q.to(q), k, v


class SymmetrisedScores(Hooks):
    """Keeps only the symmetric or only the antisymmetric part of the query-key products.

        scale (q_i . k_j + q_j . k_i) / 2,    scale (q_i . k_j - q_j . k_i) / 2

    Additive biases and the mask are unchanged.

    Args:
        scales: the scale of the scores of each layer.
        sign: 1 for the symmetric part, -1 for the antisymmetric part.
    """

    def __init__(self, scales: Sequence[float], sign: int) -> None:
        self.scales, self.sign = scales, sign
        self.products = torch.empty(0)

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        self.products = q @ repeat_for_heads(k.transpose(0, 1), q.shape[1]).transpose(0, 1).mT

    def attention_scores(self, layer: int, scores: Weights) -> Weights:
        # adds the difference to the wanted part, so that biases, caps and the mask stay as they are
        change = (self.sign * self.products.mT - self.products) / 2
        return scores + self.scales[layer] * change.to(scores)


def score_symmetry(subject: ModelAdapter, sample: Sample) -> Float[Tensor, "texts layers h"]:
    """Symmetry of the score matrix L on real tokens, without the causal mask.

        <L, L^T> / |L|^2,    rows and columns of L centred

    In a layer with a sliding window, of the pairs within it.

    Raises:
        NotApplicable: attention is not observable, or the mask cannot be removed.
    """
    short = sample.truncated(sample.count, min(MAX_TOKENS, sample.length))
    size = short.length
    everything = torch.ones(1, size, size, dtype=torch.bool) if subject.info.causal else None
    front = subject.info.prefix

    def of_scores(scores: Weights) -> Float[Tensor, "b h"]:
        # row means do not change the softmax; column means are removed too, to keep the measure symmetric
        own = scores[..., front:, front:].double()
        seen = own > MASKED_SCORE
        own = level_rows(level_rows(own, seen).mT, seen.mT).mT
        whole = own.square().sum((-2, -1)).clamp(min=1e-300)
        return ((own * own.mT).sum((-2, -1)) / whole).cpu()

    return by_layer(subject, short.passes(subject.info, mask=everything), "attn_scores", of_scores)
