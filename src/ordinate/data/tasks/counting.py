"""Counting occurrences."""

from dataclasses import dataclass, replace
from math import comb

import torch

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task


@dataclass(frozen=True, kw_only=True)
class Counting(Task):
    """Counting: at each symbol, return how many times it has occurred so far, this one included.

        ! a c a a c  ->  . 1 1 2 3 2

    A sequence has `kinds` different symbols of the alphabet, each equally probable at each position. The answer
    depends on the order of the sequence only by what lies in the past. Sliced by `occurrence`: the answer.

    Args:
        count: number of symbols, after the mark at the beginning.
        kinds: different symbols of a sequence; as many times more in longer ones, so that counts stay as they are.
        most: largest count that is asked.
        symbols: size of the symbol alphabet.
    Raises:
        ValueError: fewer than two kinds, more kinds than symbols, or a `most` below 2 or above count.
    """

    count: int = 24
    kinds: int = 6
    most: int = 8
    symbols: int = 64

    def __post_init__(self) -> None:
        need_counts(count=self.count, kinds=self.kinds, most=self.most, symbols=self.symbols)
        need(
            2 <= self.kinds <= self.symbols,
            "kinds must be between 2 and symbols",
            f"got kinds={self.kinds} of symbols={self.symbols}",
            "give other kinds or more symbols",
        )
        need(
            2 <= self.most <= self.count,
            "most must be between 2 and count",
            f"got most={self.most} of count={self.count}",
            "give another most or a larger count",
        )

    @property
    def length(self) -> int:
        """The mark at the beginning and the symbols [tokens]."""
        return 1 + self.count

    @property
    def vocabulary(self) -> int:
        """Ids of the symbols, of the mark at the beginning, then of the counts."""
        return self.symbols + 1 + self.most

    @property
    def baseline_accuracy(self) -> float:
        # earlier occurrences of the symbol at a position are binomial
        one = 1 / self.kinds
        expected = [
            sum(comb(n, earlier) * one**earlier * (1 - one) ** (n - earlier) for n in range(self.count))
            for earlier in range(self.most)
        ]
        return max(expected) / sum(expected)

    def longer(self, times: int) -> "Counting":
        """Return the task with `times` times as many symbols, and different ones, for the same counts."""
        return replace(self, count=times * self.count, kinds=times * self.kinds)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols of each sequence, then each position."""
        known = torch.rand(count, self.symbols, generator=generator).argsort(1)[:, : self.kinds]
        given = known.gather(1, torch.randint(self.kinds, (count, self.count), generator=generator))
        same = given[:, :, None] == given[:, None, :]
        occurrence = torch.cat([torch.zeros(count, 1, dtype=torch.long), same.tril().sum(2)], 1)
        inputs = torch.cat([torch.full((count, 1), self.symbols), given], 1)
        asked = (occurrence > 0) & (occurrence <= self.most)
        targets = (self.symbols + occurrence).where(asked, IGNORE_INDEX)
        return Batch(inputs, targets, {"occurrence": occurrence})
