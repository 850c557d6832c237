"""How near positions are to each other: in the code that is added to tokens, and as attention sees them."""

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.ops.bootstrap import percentiles
from ordinate.shapes import Weights
from ordinate.subject import Inputs, Subject, Watch

DRAWS = 200
# tokens that are read alone, each in all places
PLAIN_TOKENS = 4

Square = Float[ndarray, "n n"]


class FirstScores(Watch):
    """Keeps what the softmax of the first layer is taken of, on average over texts."""

    headless = True

    def __init__(self) -> None:
        self.kept: Tensor | None = None

    def scores(self, layer: int, scores: Weights) -> None:
        """Keep it."""
        if layer == 0:
            self.kept = scores.double().mean(0).cpu()


def distances(table: Float[Tensor, "n width"]) -> Square:
    """The Euclidean distance of each two rows."""
    return torch.cdist(table.double(), table.double(), compute_mode="donot_use_mm_for_euclid_dist").cpu().numpy()


def scores_of_places(subject: Subject, tokens: Tensor, length: int) -> Float[Tensor, "h n n"]:
    """What the first layer's heads make of a text in which the same token stands everywhere: of places alone.

    Everyone sees everyone. Averaged over some tokens.

    Raises:
        Unfit: its attention cannot be watched, or not without its mask.
    """
    ids = tokens[:PLAIN_TOKENS, None].expand(-1, length).contiguous()
    watch = FirstScores()
    subject.read(Inputs(ids, visible=torch.ones(1, length, length, dtype=torch.bool)), watch)
    if watch.kept is None:
        raise ValueError("the first layer must attend; it made no scores; ask another model")
    return watch.kept


def confusability(scores: Float[Tensor, "h n n"]) -> Square:
    """How differently two places look about, as queries, on average over heads: 0 alike, 1 not at all [bits].

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


def neighbours(apart: Square) -> Float[ndarray, "n"]:
    """How many places away the nearest other position is, for each."""
    own = np.where(np.eye(len(apart), dtype=bool), np.inf, apart)
    return np.abs(own.argmin(1) - np.arange(len(apart))).astype(float)


def closest(apart: Square) -> tuple[float, int]:
    """The smallest distance beside the median one, and how many places lie between the two."""
    rows, columns = np.triu_indices(len(apart), 1)
    values = apart[rows, columns]
    place = int(values.argmin())
    # where most are the same, their median distance is nothing too
    return float(values[place] / np.median(values)) if values[place] else 0.0, int(columns[place] - rows[place])


def chance_of_neighbours(apart: Square, seed: int) -> tuple[float, float, float]:
    """The share of nearest positions that are neighbours when rows change places: mean, and its middle 95 %."""
    random, shares = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        order = random.permutation(len(apart))
        shares.append((neighbours(apart[order][:, order]) == 1).mean())
    low, high = percentiles(np.array(shares))
    return float(np.mean(shares)), float(low), float(high)


def chance_of_closest(shape: tuple[int, int], seed: int) -> tuple[float, float, float]:
    """The smallest distance beside the median one in tables of random numbers: mean, and its middle 95 %."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [closest(distances(torch.randn(shape, generator=generator)))[0] for _ in range(20)]
    low, high = percentiles(np.array(drawn))
    return float(np.mean(drawn)), float(low), float(high)


def by_offset(apart: Square) -> tuple[list[float], list[float], list[float]]:
    """The mean distance of two positions so many places apart, from 1 on, and the middle 95 % of them."""
    found = [np.diagonal(apart, offset) for offset in range(1, len(apart))]
    ends = [percentiles(values) for values in found]
    return [float(x.mean()) for x in found], [float(low) for low, _ in ends], [float(high) for _, high in ends]
