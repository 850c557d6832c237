"""The induction-heads task."""

from dataclasses import dataclass, replace

import torch

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task


@dataclass(frozen=True, kw_only=True)
class Induction(Task):
    """Induction: recall the token that followed a marker, which is repeated at the end of random symbols.

        a c ! b d a c !  ->  b, the only target, at the last position

    Sliced by `distance` between the two markers [tokens].

    Args:
        length: sequence length [tokens].
        symbols: size of the symbol alphabet, without the marker.
    Raises:
        ValueError: a length below 3, or fewer than two different symbols.
    Source: Fu et al. 2023, Hungry Hungry Hippos, section 3.1, https://arxiv.org/abs/2212.14052; after Olsson et al.
        2022, https://arxiv.org/abs/2209.11895.
    """

    length: int = 30
    symbols: int = 20

    def __post_init__(self) -> None:
        need_counts(length=self.length, symbols=self.symbols)
        need(
            self.length >= 3, "induction needs a length of at least 3", f"got length {self.length}", "give 3 or more"
        )
        need(
            self.symbols > 1, "induction needs two different symbols", f"got symbols={self.symbols}", "give 2 or more"
        )

    @property
    def vocabulary(self) -> int:
        """Ids of the symbols, then of the marker."""
        return self.symbols + 1

    @property
    def baseline_accuracy(self) -> float:
        return 1 / self.symbols

    def longer(self, times: int) -> "Induction":
        """Return the task at `times` times the length."""
        return replace(self, length=times * self.length)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols and the position of the first marker."""
        inputs = torch.randint(self.symbols, (count, self.length), generator=generator)
        first = torch.randint(self.length - 2, (count, 1), generator=generator)
        inputs.scatter_(1, first, self.symbols)
        inputs[:, -1] = self.symbols
        targets = torch.full_like(inputs, IGNORE_INDEX)
        targets[:, -1:] = inputs.gather(1, first + 1)
        return Batch(inputs, targets, {"distance": (self.length - 1 - first).expand_as(inputs)})
