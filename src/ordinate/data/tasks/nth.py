"""Lookup of the n-th symbol."""

from dataclasses import dataclass, replace

import torch

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task


@dataclass(frozen=True, kw_only=True)
class Nth(Task):
    """Lookup by absolute position: return the n-th symbol, for queries n that follow the symbols.

        a c b a | 3 1 2  ->  b a c

    Sliced by `place`: the queried position, from 1.

    Args:
        count: number of symbols.
        places: queries are among the first `places` positions, in longer sequences too.
        questions: queries per sequence, drawn independently.
        symbols: size of the symbol alphabet.
    Raises:
        ValueError: places above count, no queries, or fewer than two different symbols.
    """

    count: int = 16
    places: int = 16
    questions: int = 8
    symbols: int = 32

    def __post_init__(self) -> None:
        need_counts(count=self.count, places=self.places, questions=self.questions, symbols=self.symbols)
        need(
            1 <= self.places <= self.count,
            "places must be between 1 and count",
            f"got places={self.places} of count={self.count}",
            "give a smaller places or a larger count",
        )
        need(self.questions > 0, "at least one query is needed", "got questions=0", "give 1 or more")
        need(self.symbols > 1, "nth needs two different symbols", f"got symbols={self.symbols}", "give 2 or more")

    @property
    def length(self) -> int:
        """The symbols and the queries [tokens]."""
        return self.count + self.questions

    @property
    def vocabulary(self) -> int:
        """Ids of the symbols, then of the positions."""
        return self.symbols + self.places

    @property
    def baseline_accuracy(self) -> float:
        return 1 / self.symbols

    def longer(self, times: int) -> "Nth":
        """Return the task with `times` times as many symbols and queries, for the same positions."""
        return replace(self, count=times * self.count, questions=times * self.questions)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        given = torch.randint(self.symbols, (count, self.count), generator=generator)
        place = torch.randint(self.places, (count, self.questions), generator=generator)
        inputs = torch.cat([given, self.symbols + place], 1)
        targets = torch.cat([torch.full_like(given, IGNORE_INDEX), given.gather(1, place)], 1)
        return Batch(inputs, targets, {"place": torch.cat([torch.zeros_like(given), place + 1], 1)})
