"""The previous token."""

from dataclasses import dataclass, replace

import torch

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task


@dataclass(frozen=True, kw_only=True)
class Previous(Task):
    """Previous token: at each position, return the symbol `back` tokens before it.

        a c b a  ->  . a c b      target[t] = input[t - back]

    The offset is the same everywhere, and the symbols are independent, so the relation is one of position alone: one
    head that attends to that offset is enough. Sliced by `place`: the position, from 1.

    Args:
        length: sequence length [tokens].
        back: distance to the symbol that is asked for; 1: the previous token [tokens].
        symbols: size of the symbol alphabet.
    Raises:
        ValueError: a distance of 0 or of the whole length, or fewer than two different symbols.
    Source: Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, previous token heads,
        https://transformer-circuits.pub/2021/framework.
    Departs: there heads of trained models do this; here it is the task.
    """

    length: int = 32
    back: int = 1
    symbols: int = 32

    def __post_init__(self) -> None:
        need_counts(length=self.length, back=self.back, symbols=self.symbols)
        need(
            0 < self.back < self.length,
            "back must be between 1 and length - 1",
            f"got back={self.back} of length={self.length}",
            "give a smaller back or a larger length",
        )
        need(
            self.symbols > 1, "previous needs two different symbols", f"got symbols={self.symbols}", "give 2 or more"
        )

    @property
    def vocabulary(self) -> int:
        """Ids of the symbols."""
        return self.symbols

    @property
    def baseline_accuracy(self) -> float:
        return 1 / self.symbols

    def longer(self, times: int) -> "Previous":
        """Return the task at `times` times the length, with the same distance."""
        return replace(self, length=times * self.length)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols, independently and uniformly."""
        inputs = torch.randint(self.symbols, (count, self.length), generator=generator)
        targets = torch.full_like(inputs, IGNORE_INDEX)
        targets[:, self.back :] = inputs[:, : -self.back]
        return Batch(inputs, targets, {"place": torch.arange(1, self.length + 1).expand_as(inputs)})
