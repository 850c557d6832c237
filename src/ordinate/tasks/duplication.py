"""Duplication."""

from dataclasses import dataclass, replace

import torch

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task


@dataclass(frozen=True, kw_only=True)
class Duplication(Task):
    """Go on with a word that has begun again: 0 w 0 w, with w of random symbols.

    The second w is asked for, each symbol after those before it. One large vocabulary and one long distance: the task
    by which hashed attention was measured. Sliced by `place`: which symbol of w is asked for, from 1.

    Args:
        length: tokens of 0 w 0 w, even; 1024 in the paper.
        symbols: different symbols there are, numbered from 1.
    Raises:
        ValueError: an odd length, or one without room for a symbol.
    Source: Kitaev, Kaiser and Levskaya 2020, Reformer, section 5, https://arxiv.org/abs/2001.04451.
    """

    length: int = 64
    symbols: int = 127

    def __post_init__(self) -> None:
        need_counts(length=self.length, symbols=self.symbols)
        need(
            self.length >= 4 and self.length % 2 == 0,
            "duplication needs an even length, 4 or more",
            f"got length {self.length}",
            "give one such as 64",
        )
        need(self.symbols > 1, "duplication needs symbols to tell apart", f"got {self.symbols}", "give 2 or more")

    @property
    def vocabulary(self) -> int:
        """0, then the symbols."""
        return self.symbols + 1

    @property
    def chance(self) -> float:
        """Symbols are equally likely."""
        return 1 / self.symbols

    def longer(self, times: int) -> "Duplication":
        """So many times the length."""
        return replace(self, length=times * self.length)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the word."""
        half = self.length // 2
        word = 1 + torch.randint(self.symbols, (count, half - 1), generator=generator)
        once = torch.nn.functional.pad(word, (1, 0))
        inputs = torch.cat([once, once], 1)
        targets = torch.nn.functional.pad(word, (half, 1), value=SILENT)
        place = torch.arange(self.length) - half + 1
        return Batch(inputs, targets, {"place": place.expand_as(inputs)})
