"""Multi-query associative recall."""

from dataclasses import dataclass, replace

import torch

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts, need_positive
from ordinate.task import Task


@dataclass(frozen=True, kw_only=True)
class MultiRecall(Task):
    """Which value stood behind this key, asked for every key, at places that are mostly near.

        k1 v1 .. kn vn | . k3 . . . k1 . .   with random tokens at the dots; at each key its value is to be said

    Key i is asked for at place 2 g_i after the pairs, with g_i drawn without replacement from 0 .. s - 1,
    s = (length - 2 pairs) / 2, with probability proportional to (g + 1)^(power - 1). Keys come from [1, V/2), values
    from [V/2, V), both without replacement; all other places from [0, V). Sliced by `distance` from the key to its
    question [tokens].

    Args:
        length: tokens of a sequence.
        pairs: pairs in a sequence.
        vocabulary: different tokens, V.
        power: the power of the law by which questions are near the pairs; 1: anywhere alike.
    Raises:
        ValueError: an odd length, one below four tokens a pair, or a vocabulary that is too small.
    Source: Arora et al. 2023, Zoology, section 4 and appendix E, https://arxiv.org/abs/2312.04927; its code decides
        where the paper leaves something open.
    """

    length: int = 64
    pairs: int = 4
    vocabulary: int = 8192
    power: float = 0.01

    def __post_init__(self) -> None:
        need_counts(length=self.length, pairs=self.pairs, vocabulary=self.vocabulary)
        need_positive("power", self.power)
        need(self.pairs > 0, "multi_recall needs a pair", f"got pairs={self.pairs}", "give 1 or more")
        need(self.length % 2 == 0, "multi_recall needs an even length", f"got {self.length}", "give one more or less")
        need(
            4 * self.pairs <= self.length,
            "multi_recall needs four tokens of length for each pair",
            f"got length {self.length} for {self.pairs} pairs",
            "give a larger length, or fewer pairs",
        )
        need(
            self.vocabulary > max(self.length, 2 * self.pairs + 2),
            "multi_recall needs more different tokens than a sequence has",
            f"got vocabulary {self.vocabulary} for length {self.length}",
            "give a larger vocabulary",
        )

    @property
    def chance(self) -> float:
        """Values are equally likely."""
        return 1 / (self.vocabulary - self.vocabulary // 2)

    def longer(self, times: int) -> "MultiRecall":
        """So many times the length and the pairs."""
        return replace(self, length=times * self.length, pairs=times * self.pairs)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw keys, values, where each key is asked for, and what stands elsewhere."""
        half, context = self.vocabulary // 2, 2 * self.pairs
        keys = 1 + _distinct(torch.ones(half - 1), self.pairs, generator, count)
        values = half + _distinct(torch.ones(self.vocabulary - half), self.pairs, generator, count)
        slots = torch.arange(1, (self.length - context) // 2 + 1, dtype=torch.float64)
        asked = context + 2 * _distinct(slots ** (self.power - 1), self.pairs, generator, count)
        inputs = torch.randint(self.vocabulary, (count, self.length), generator=generator)
        inputs[:, :context] = torch.stack([keys, values], 2).flatten(1)
        inputs.scatter_(1, asked, keys)
        targets = torch.full_like(inputs, SILENT).scatter_(1, asked, values)
        distance = asked - 2 * torch.arange(self.pairs)
        return Batch(inputs, targets, {"distance": torch.zeros_like(inputs).scatter_(1, asked, distance)})


def _distinct(weights: torch.Tensor, draws: int, generator: torch.Generator, count: int) -> torch.Tensor:
    """`count` rows of so many different indices, drawn one after another with these weights."""
    return torch.multinomial(weights.expand(count, -1), draws, generator=generator)
