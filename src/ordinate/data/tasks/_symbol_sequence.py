"""Base class of symbol-sequence tasks: copying, reversing, sorting."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task

Kind = TypeVar("Kind", bound="SymbolSequence")
Symbols = Int[Tensor, "b count"]


@dataclass(frozen=True, kw_only=True)
class SymbolSequence(Task):
    """Random symbols, a separator, and the symbols again in a given order, predicted autoregressively.

    Must: `reorder` and `slices_at`. May: `sample_symbols`.

    Args:
        count: number of symbols in the sequence.
        symbols: size of the symbol alphabet.
    Raises:
        ValueError: no symbols to repeat, or fewer than two different symbols.
    """

    count: int = 16
    symbols: int = 32

    def __post_init__(self) -> None:
        name = type(self).__name__.lower()
        need_counts(count=self.count, symbols=self.symbols)
        need(self.count > 0, f"{name} needs something to {name}", f"got count={self.count}", "give 1 or more")
        need(self.symbols > 1, f"{name} needs two different symbols", f"got symbols={self.symbols}", "give 2 or more")

    def sample_symbols(self, generator: torch.Generator, rows: int) -> Symbols:
        """Draw the symbols, independently and uniformly."""
        return torch.randint(self.symbols, (rows, self.count), generator=generator)

    @abstractmethod
    def reorder(self, given: Symbols) -> Symbols:
        """Return the symbols in target order."""

    @abstractmethod
    def slices_at(self, index: Int[Tensor, "n"]) -> dict[str, Int[Tensor, "n"]]:
        """Return the slices at each position, given the index of the target symbol there, from 0."""

    @property
    def length(self) -> int:
        """The symbols, the separator, and all but the last target [tokens]."""
        return 2 * self.count

    @property
    def vocabulary(self) -> int:
        """Ids of the symbols, then of the separator."""
        return self.symbols + 1

    @property
    def baseline_accuracy(self) -> float:
        return 1 / self.symbols

    def longer(self: Kind, times: int) -> Kind:
        """Return the task with `times` times as many symbols."""
        return replace(self, count=times * self.count)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        given = self.sample_symbols(generator, count)
        separator, asked = torch.full((count, 1), self.symbols), self.reorder(given)
        inputs = torch.cat([given, separator, asked[:, :-1]], 1)
        targets = torch.cat([torch.full_like(given, IGNORE_INDEX), asked], 1)
        slices = self.slices_at(torch.arange(self.length) - self.count)
        return Batch(inputs, targets, {name: x.expand_as(inputs) for name, x in slices.items()})
