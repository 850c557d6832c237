"""Copying."""

from dataclasses import dataclass, replace

import torch

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task


@dataclass(frozen=True, kw_only=True)
class Copy(Task):
    """Say again what was said, from the first to the last.

        a b c ! a b  ->  a b c, from the sign on, each after what came before it

    Sliced by `place`: which of the symbols is asked for, from 1.

    Args:
        count: symbols to copy.
        symbols: different symbols there are.
    Raises:
        ValueError: nothing to copy, or fewer than two symbols.
    Source: Graves, Wayne and Danihelka 2014, Neural Turing Machines, section 4.1, https://arxiv.org/abs/1410.5401.
    Departs: symbols where there are vectors of bits; a fixed count.
    """

    count: int = 16
    symbols: int = 32

    def __post_init__(self) -> None:
        need_counts(count=self.count, symbols=self.symbols)
        need(self.count > 0, "copy needs something to copy", f"got count={self.count}", "give 1 or more")
        need(self.symbols > 1, "copy needs symbols to tell apart", f"got symbols={self.symbols}", "give 2 or more")

    @property
    def length(self) -> int:
        """The symbols, the sign, and all but the last symbol again [tokens]."""
        return 2 * self.count

    @property
    def vocabulary(self) -> int:
        """Symbols, then the sign."""
        return self.symbols + 1

    @property
    def chance(self) -> float:
        """Symbols are equally likely."""
        return 1 / self.symbols

    def longer(self, times: int) -> "Copy":
        """So many times as many symbols."""
        return replace(self, count=times * self.count)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols."""
        said = torch.randint(self.symbols, (count, self.count), generator=generator)
        sign = torch.full((count, 1), self.symbols)
        inputs = torch.cat([said, sign, said[:, :-1]], 1)
        targets = torch.cat([torch.full_like(said, SILENT), said], 1)
        place = torch.arange(self.length) - self.count + 1
        return Batch(inputs, targets, {"place": place.expand_as(inputs)})
