"""Sorting."""

from dataclasses import dataclass, replace

import torch

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task


@dataclass(frozen=True, kw_only=True)
class Sorting(Task):
    """Say different symbols again in their own order, whatever the order in which they came.

        c a b ! a b  ->  a b c, from the sign on, each after what came before it

    Where a symbol stood says nothing here: the contrast to copying. Sliced by `place`: which of the sorted symbols is
    asked for, from 1.

    Args:
        count: symbols to sort.
        symbols: different symbols there are.
    Raises:
        ValueError: fewer than two symbols to sort, or fewer there than are to be drawn.
    """

    count: int = 16
    symbols: int = 64

    def __post_init__(self) -> None:
        need_counts(count=self.count, symbols=self.symbols)
        need(self.count > 1, "sorting needs symbols to sort", f"got count={self.count}", "give 2 or more")
        need(
            self.count <= self.symbols,
            "symbols are sorted without repetition",
            f"got count={self.count} of symbols={self.symbols}",
            "give more symbols, or a smaller count",
        )

    @property
    def length(self) -> int:
        """The symbols, the sign, and all but the last of the sorted ones [tokens]."""
        return 2 * self.count

    @property
    def vocabulary(self) -> int:
        """Symbols, then the sign."""
        return self.symbols + 1

    @property
    def chance(self) -> float:
        """Symbols are equally likely."""
        return 1 / self.symbols

    def longer(self, times: int) -> "Sorting":
        """So many times as many symbols."""
        return replace(self, count=times * self.count)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols, each once."""
        noise = torch.rand(count, self.symbols, generator=generator)
        said = noise.argsort(1)[:, : self.count]
        ordered = said.sort(1).values
        inputs = torch.cat([said, torch.full((count, 1), self.symbols), ordered[:, :-1]], 1)
        targets = torch.cat([torch.full_like(said, SILENT), ordered], 1)
        place = torch.arange(self.length) - self.count + 1
        return Batch(inputs, targets, {"place": place.expand_as(inputs)})
