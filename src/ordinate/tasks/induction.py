"""Induction."""

from dataclasses import dataclass, replace

import torch

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task


@dataclass(frozen=True, kw_only=True)
class Induction(Task):
    """What followed this sign the last time? Random symbols, a sign among them, and the sign again at the end.

        a c ! b d a c !  ->  b, asked once, at the end

    Sliced by `distance` from the one sign to the other [tokens].

    Args:
        length: tokens of a sequence.
        symbols: different symbols beside the sign.
    Raises:
        ValueError: a length without room for a sign, what follows it, and the sign again, or fewer than two symbols.
    Source: Fu et al. 2023, Hungry Hungry Hippos, section 3.1, https://arxiv.org/abs/2212.14052; after Olsson et al.
        2022, https://arxiv.org/abs/2209.11895.
    """

    length: int = 30
    symbols: int = 20

    def __post_init__(self) -> None:
        need_counts(length=self.length, symbols=self.symbols)
        need(self.length >= 3, "induction needs three tokens", f"got length {self.length}", "give 3 or more")
        need(self.symbols > 1, "induction needs symbols to tell apart", f"got {self.symbols}", "give 2 or more")

    @property
    def vocabulary(self) -> int:
        """Symbols, then the sign."""
        return self.symbols + 1

    @property
    def chance(self) -> float:
        """Symbols are equally likely."""
        return 1 / self.symbols

    def longer(self, times: int) -> "Induction":
        """So many times as many symbols before the question."""
        return replace(self, length=times * self.length)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw symbols and where the first sign stands."""
        inputs = torch.randint(self.symbols, (count, self.length), generator=generator)
        first = torch.randint(self.length - 2, (count, 1), generator=generator)
        inputs.scatter_(1, first, self.symbols)
        inputs[:, -1] = self.symbols
        targets = torch.full_like(inputs, SILENT)
        targets[:, -1:] = inputs.gather(1, first + 1)
        return Batch(inputs, targets, {"distance": (self.length - 1 - first).expand_as(inputs)})
