"""Similarity of positions: distances between position embeddings, and divergence between attention patterns."""

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.ops.stats.bootstrap import percentiles
from ordinate.probing._adapter import Inputs, ModelAdapter
from ordinate.probing.activations.names import lacking_activation
from ordinate.probing.activations.recording import collect

# permutations of the null distribution
PERMUTATIONS = 200
# tokens that are repeated at all positions, one at a time
MAX_TOKENS = 4

PairwiseDistances = Float[ndarray, "n n"]


def pairwise_distances(table: Float[Tensor, "n width"]) -> PairwiseDistances:
    """Pairwise Euclidean distances of rows."""
    return torch.cdist(table.double(), table.double(), compute_mode="donot_use_mm_for_euclid_dist").cpu().numpy()


def position_scores(subject: ModelAdapter, tokens: Tensor, length: int) -> Float[Tensor, "h n n"]:
    """Attention scores of the first layer on a text of one repeated token, so that only position matters.

    Without a mask, and averaged over some tokens.

    Raises:
        NotApplicable: attention is not observable, or the mask cannot be removed.
    """
    ids = tokens[:MAX_TOKENS, None].expand(-1, length).contiguous()
    given, key = Inputs(ids, mask=torch.ones(1, length, length, dtype=torch.bool)), ("attn_scores", 0)
    found = collect(subject, [given], [key])
    if key not in found:
        raise lacking_activation(subject, *key[:1], [key[1]])
    return found[key].double().mean(0).cpu()


def attention_divergence(scores: Float[Tensor, "h n n"]) -> PairwiseDistances:
    """Jensen-Shannon divergence between attention patterns of two query positions, averaged over heads [bits].

    0: equal patterns; 1: disjoint ones.

    JSD(softmax_j s(i, j), softmax_j s(i', j)) / ln 2
    """
    weights = scores.softmax(-1)
    total = torch.zeros(scores.shape[1:], dtype=torch.float64)
    for head in weights:
        entropy = -torch.special.xlogy(head, head).sum(-1)
        for place, row in enumerate(head):
            middle = (head + row) / 2
            mixed = -torch.special.xlogy(middle, middle).sum(-1)
            total[place] += (mixed - (entropy + entropy[place]) / 2).clamp(min=0)
    return (total / math.log(2) / len(weights)).numpy()


def nearest_offsets(distances: PairwiseDistances) -> Float[ndarray, "n"]:
    """Offset to the nearest other position, for each position."""
    own = np.where(np.eye(len(distances), dtype=bool), np.inf, distances)
    return np.abs(own.argmin(1) - np.arange(len(distances))).astype(float)


def closest_pair(distances: PairwiseDistances) -> tuple[float, int]:
    """The smallest pairwise distance relative to the median, and the offset of that pair."""
    rows, columns = np.triu_indices(len(distances), 1)
    values = distances[rows, columns]
    place = int(values.argmin())
    # if most rows are equal the median is 0 too
    return float(values[place] / np.median(values)) if values[place] else 0.0, int(columns[place] - rows[place])


def null_adjacent_share(distances: PairwiseDistances, seed: int) -> tuple[float, float, float]:
    """Null (permuted rows) of the share of adjacent nearest neighbours: mean and central 95 % interval."""
    random, shares = np.random.default_rng(seed), []
    for _ in range(PERMUTATIONS):
        order = random.permutation(len(distances))
        shares.append((nearest_offsets(distances[order][:, order]) == 1).mean())
    low, high = percentiles(np.array(shares))
    return float(np.mean(shares)), float(low), float(high)


def null_closest_pair(shape: tuple[int, int], seed: int) -> tuple[float, float, float]:
    """Null distribution of the smallest / median distance for random tables: mean and central 95 % interval."""
    generator, (length, _) = torch.Generator().manual_seed(seed), shape
    pairs, drawn = torch.triu_indices(length, length, 1), []
    for _ in range(PERMUTATIONS):
        # random rows are never close enough for the differences of squares to cancel
        own = torch.randn(shape, generator=generator)
        far = torch.cdist(own, own, compute_mode="use_mm_for_euclid_dist")[pairs[0], pairs[1]]
        drawn.append(float(far.min() / far.median()))
    low, high = percentiles(np.array(drawn))
    return float(np.mean(drawn)), float(low), float(high)


def distances_by_offset(distances: PairwiseDistances) -> tuple[list[float], list[float], list[float]]:
    """Mean distance of two positions by offset, from 1 on, and the central 95 % of the pairs."""
    found = [np.diagonal(distances, offset) for offset in range(1, len(distances))]
    ends = [percentiles(values) for values in found]
    return [float(x.mean()) for x in found], [float(low) for low, _ in ends], [float(high) for _, high in ends]
