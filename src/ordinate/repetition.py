"""Tasks in which symbols are said, and asked for again in some order."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task

Kind = TypeVar("Kind", bound="Repetition")
Symbols = Int[Tensor, "b count"]


@dataclass(frozen=True, kw_only=True)
class Repetition(Task):
    """Random symbols, a sign, and the symbols again, each asked for after what came before it.

    Must: `again` and `sliced`. May: `draw`.

    Args:
        count: symbols that are said.
        symbols: different symbols there are.
    Raises:
        ValueError: nothing to say again, or fewer than two symbols.
    """

    count: int = 16
    symbols: int = 32

    def __post_init__(self) -> None:
        name = type(self).__name__.lower()
        need_counts(count=self.count, symbols=self.symbols)
        need(self.count > 0, f"{name} needs something to {name}", f"got count={self.count}", "give 1 or more")
        need(self.symbols > 1, f"{name} needs symbols to tell apart", f"got symbols={self.symbols}", "give 2 or more")

    def draw(self, generator: torch.Generator, rows: int) -> Symbols:
        """The symbols that are said: each as likely as every other, whatever came before it."""
        return torch.randint(self.symbols, (rows, self.count), generator=generator)

    @abstractmethod
    def again(self, said: Symbols) -> Symbols:
        """The symbols in the order in which they are asked for."""

    @abstractmethod
    def sliced(self, asked: Int[Tensor, "n"]) -> dict[str, Int[Tensor, "n"]]:
        """By what scores are broken down, at each place, given which symbol is asked for there, from 0."""

    @property
    def length(self) -> int:
        """The symbols, the sign, and all but the last of those asked for [tokens]."""
        return 2 * self.count

    @property
    def vocabulary(self) -> int:
        """Symbols, then the sign."""
        return self.symbols + 1

    @property
    def chance(self) -> float:
        """Symbols are equally likely."""
        return 1 / self.symbols

    def longer(self: Kind, times: int) -> Kind:
        """So many times as many symbols."""
        return replace(self, count=times * self.count)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols."""
        said = self.draw(generator, count)
        sign, asked = torch.full((count, 1), self.symbols), self.again(said)
        inputs = torch.cat([said, sign, asked[:, :-1]], 1)
        targets = torch.cat([torch.full_like(said, SILENT), asked], 1)
        slices = self.sliced(torch.arange(self.length) - self.count)
        return Batch(inputs, targets, {name: x.expand_as(inputs) for name, x in slices.items()})
