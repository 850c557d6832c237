"""Reversing."""

from dataclasses import dataclass, replace

import torch

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task


@dataclass(frozen=True, kw_only=True)
class Reverse(Task):
    """Say again what was said, from the last to the first.

        a b c ! c b  ->  c b a, from the sign on, each after what came before it

    What is asked for moves away by two tokens with each answer, while copying keeps it at one distance. Sliced by
    `distance` from the symbol to where it is asked for [tokens].

    Args:
        count: symbols to reverse.
        symbols: different symbols there are.
    Raises:
        ValueError: nothing to reverse, or fewer than two symbols.
    Source: Grefenstette et al. 2015, section 4.1, https://arxiv.org/abs/1506.02516.
    Departs: a fixed count.
    """

    count: int = 16
    symbols: int = 32

    def __post_init__(self) -> None:
        need_counts(count=self.count, symbols=self.symbols)
        need(self.count > 0, "reverse needs something to reverse", f"got count={self.count}", "give 1 or more")
        need(self.symbols > 1, "reverse needs symbols to tell apart", f"got symbols={self.symbols}", "give 2 or more")

    @property
    def length(self) -> int:
        """The symbols, the sign, and all but the first symbol again [tokens]."""
        return 2 * self.count

    @property
    def vocabulary(self) -> int:
        """Symbols, then the sign."""
        return self.symbols + 1

    @property
    def chance(self) -> float:
        """Symbols are equally likely."""
        return 1 / self.symbols

    def longer(self, times: int) -> "Reverse":
        """So many times as many symbols."""
        return replace(self, count=times * self.count)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols."""
        said = torch.randint(self.symbols, (count, self.count), generator=generator)
        sign, back = torch.full((count, 1), self.symbols), said.flip(1)
        inputs = torch.cat([said, sign, back[:, :-1]], 1)
        targets = torch.cat([torch.full_like(said, SILENT), back], 1)
        distance = 2 * (torch.arange(self.length) - self.count) + 1
        return Batch(inputs, targets, {"distance": distance.expand_as(inputs)})
