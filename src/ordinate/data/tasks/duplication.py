"""The duplication task of Reformer."""

from dataclasses import dataclass, replace

import torch

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task


@dataclass(frozen=True, kw_only=True)
class Duplication(Task):
    """Repeat a word of random symbols: 0 w 0 w.

    The second w is predicted autoregressively. With a large vocabulary and one long copy distance, it is the task
    used to evaluate Reformer's LSH attention. Sliced by `place`: index of the target symbol in w, from 1.

    Args:
        length: tokens of 0 w 0 w, even; 1024 in the paper.
        symbols: size of the symbol alphabet; ids start at 1.
    Raises:
        ValueError: length is odd or below 4, or fewer than two different symbols.
    Source: Kitaev, Kaiser and Levskaya 2020, Reformer, section 5, https://arxiv.org/abs/2001.04451.
    """

    length: int = 64
    symbols: int = 127

    def __post_init__(self) -> None:
        need_counts(length=self.length, symbols=self.symbols)
        need(
            self.length >= 4 and self.length % 2 == 0,
            "duplication needs an even length of at least 4",
            f"got length {self.length}",
            "give one such as 64",
        )
        need(
            self.symbols > 1,
            "duplication needs two different symbols",
            f"got symbols={self.symbols}",
            "give 2 or more",
        )

    @property
    def vocabulary(self) -> int:
        """The marker 0, then the symbols."""
        return self.symbols + 1

    @property
    def baseline_accuracy(self) -> float:
        return 1 / self.symbols

    def longer(self, times: int) -> "Duplication":
        """Return the task at `times` times the length."""
        return replace(self, length=times * self.length)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        half = self.length // 2
        word = 1 + torch.randint(self.symbols, (count, half - 1), generator=generator)
        once = torch.nn.functional.pad(word, (1, 0))
        inputs = torch.cat([once, once], 1)
        targets = torch.nn.functional.pad(word, (half, 1), value=IGNORE_INDEX)
        place = torch.arange(self.length) - half + 1
        return Batch(inputs, targets, {"place": place.expand_as(inputs)})
