"""Multi-query associative recall (MQAR)."""

import math
from dataclasses import dataclass, replace

import torch

from ordinate.core.checks import need, need_counts, need_positive
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task

# weights of positions stay within float64, whose largest number is 2e308, in sums over positions too
LARGEST_EXPONENT = 250


@dataclass(frozen=True, kw_only=True)
class MultiRecall(Task):
    """Multi-query associative recall (MQAR): key-value pairs, then every key again, where its value is the target.

        k1 v1 .. kn vn | . k3 . . . k1 . .   with random tokens at the dots; the target at each key is its value

    The query of key i is at position 2 g_i after the pairs, with g_i drawn without replacement from 0 .. s - 1,
    s = (length - 2 pairs) / 2, with probability proportional to (g + 1)^(power - 1). Keys come from [1, V/2), values
    from [V/2, V), both without replacement; all other tokens from [0, V). Sliced by `distance` from the key to its
    query [tokens].

    Args:
        length: sequence length [tokens].
        pairs: number of key-value pairs.
        vocabulary: vocabulary size V.
        power: exponent of the power law of query positions; 1: uniform.
    Raises:
        ValueError: an odd length, a length below four tokens per pair, a vocabulary that is too small, or a power
            with which positions cannot be drawn.
    Source: Arora et al. 2023, Zoology, section 4 and appendix E, https://arxiv.org/abs/2312.04927; where the paper is
        ambiguous, its code.
    """

    length: int = 64
    pairs: int = 4
    vocabulary: int = 8192
    power: float = 0.01

    def __post_init__(self) -> None:
        need_counts(length=self.length, pairs=self.pairs, vocabulary=self.vocabulary)
        need_positive("power", self.power)
        need(self.pairs > 0, "multi_recall needs at least one pair", f"got pairs={self.pairs}", "give 1 or more")
        need(self.length % 2 == 0, "multi_recall needs an even length", f"got {self.length}", "give an even length")
        need(
            4 * self.pairs <= self.length,
            "multi_recall needs a length of at least four tokens per pair",
            f"got length {self.length} for {self.pairs} pairs",
            "give a larger length, or fewer pairs",
        )
        need(
            self.vocabulary > max(self.length, 2 * self.pairs + 2),
            "multi_recall needs a vocabulary larger than the length",
            f"got vocabulary {self.vocabulary} for length {self.length}",
            "give a larger vocabulary",
        )
        slots = self.length // 2 - self.pairs
        most = 1 + math.floor(LARGEST_EXPONENT / math.log10(max(10, slots)))
        must = f"power must be at most {most} for {slots} positions, so that each may be drawn"
        need(self.power <= most, must, f"got power={self.power:g}", "give less; 1 is uniform")

    @property
    def baseline_accuracy(self) -> float:
        return 1 / (self.vocabulary - self.vocabulary // 2)

    def longer(self, times: int) -> "MultiRecall":
        """Return the task with `times` times the length and the pairs."""
        return replace(self, length=times * self.length, pairs=times * self.pairs)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw keys, values, query positions and filler tokens."""
        half, context = self.vocabulary // 2, 2 * self.pairs
        keys = 1 + _distinct(torch.ones(half - 1), self.pairs, generator, count)
        values = half + _distinct(torch.ones(self.vocabulary - half), self.pairs, generator, count)
        slots = torch.arange(1, (self.length - context) // 2 + 1, dtype=torch.float64)
        asked = context + 2 * _distinct(slots ** (self.power - 1), self.pairs, generator, count)
        inputs = torch.randint(self.vocabulary, (count, self.length), generator=generator)
        inputs[:, :context] = torch.stack([keys, values], 2).flatten(1)
        inputs.scatter_(1, asked, keys)
        targets = torch.full_like(inputs, IGNORE_INDEX).scatter_(1, asked, values)
        distance = asked - 2 * torch.arange(self.pairs)
        return Batch(inputs, targets, {"distance": torch.zeros_like(inputs).scatter_(1, asked, distance)})


def _distinct(weights: torch.Tensor, draws: int, generator: torch.Generator, count: int) -> torch.Tensor:
    """Draw `count` rows of `draws` distinct indices, without replacement, with these weights."""
    return torch.multinomial(weights.expand(count, -1), draws, generator=generator)
