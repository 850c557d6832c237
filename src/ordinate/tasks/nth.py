"""Which token stood at the n-th place."""

from dataclasses import dataclass, replace

import torch

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task


@dataclass(frozen=True, kw_only=True)
class Nth(Task):
    """Which symbol stood at the n-th place, counted from the front? Symbols, then numbers of places.

        a c b a | 3 1 2  ->  b a c

    Position itself is asked for. Sliced by `place`: the number of the place, from 1.

    Args:
        count: symbols to remember.
        places: the first so many of them are asked for; in longer sequences no more.
        questions: places asked for in a sequence, each drawn by itself.
        symbols: different symbols there are.
    Raises:
        ValueError: fewer symbols than places, nothing asked, or fewer than two symbols.
    """

    count: int = 16
    places: int = 16
    questions: int = 8
    symbols: int = 32

    def __post_init__(self) -> None:
        need_counts(count=self.count, places=self.places, questions=self.questions, symbols=self.symbols)
        need(
            1 <= self.places <= self.count,
            "places must lie within the symbols",
            f"got places={self.places} of count={self.count}",
            "give between 1 and count",
        )
        need(self.questions > 0, "something must be asked", "got questions=0", "give 1 or more")
        need(self.symbols > 1, "nth needs symbols to tell apart", f"got symbols={self.symbols}", "give 2 or more")

    @property
    def length(self) -> int:
        """The symbols and the questions [tokens]."""
        return self.count + self.questions

    @property
    def vocabulary(self) -> int:
        """Symbols, then places."""
        return self.symbols + self.places

    @property
    def chance(self) -> float:
        """Symbols are equally likely."""
        return 1 / self.symbols

    def longer(self, times: int) -> "Nth":
        """So many times as many symbols and questions, of the same places."""
        return replace(self, count=times * self.count, questions=times * self.questions)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols and the places."""
        said = torch.randint(self.symbols, (count, self.count), generator=generator)
        place = torch.randint(self.places, (count, self.questions), generator=generator)
        inputs = torch.cat([said, self.symbols + place], 1)
        targets = torch.cat([torch.full_like(said, SILENT), said.gather(1, place)], 1)
        return Batch(inputs, targets, {"place": torch.cat([torch.zeros_like(said), place + 1], 1)})
