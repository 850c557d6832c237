"""The same distance as in an example."""

from dataclasses import dataclass, replace

import torch

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task


@dataclass(frozen=True, kw_only=True)
class SameDistance(Task):
    """Same distance: two marks show a distance; return the symbol at this distance before each later position.

        a ( b ) d c a e  ->  . . . . . . d c      the marks are 2 apart: target[t] = input[t - 2]

    The distance is drawn for each sequence, so no fixed offset solves the task: it is read from the marks. The
    example begins in the first quarter of the sequence, and a position is asked if its answer stands after the
    example. Sliced by `distance` [tokens].

    Args:
        length: sequence length [tokens].
        distances: distances are drawn from 1 to this one [tokens].
        symbols: size of the symbol alphabet, without the marks.
    Raises:
        ValueError: fewer than two distances or two symbols, or a length below four times the largest distance.
    """

    length: int = 32
    distances: int = 4
    symbols: int = 32

    def __post_init__(self) -> None:
        need_counts(length=self.length, distances=self.distances, symbols=self.symbols)
        need(
            self.distances > 1,
            "same_distance needs two different distances",
            f"got distances={self.distances}",
            "give 2 or more",
        )
        need(
            4 * self.distances <= self.length,
            "same_distance needs a length of at least four times its largest distance",
            f"got distances={self.distances} of length={self.length}",
            "give a larger length, or fewer distances",
        )
        need(
            self.symbols > 1,
            "same_distance needs two different symbols",
            f"got symbols={self.symbols}",
            "give 2 or more",
        )

    @property
    def vocabulary(self) -> int:
        """Ids of the symbols, then of the two marks."""
        return self.symbols + 2

    @property
    def baseline_accuracy(self) -> float:
        return 1 / self.symbols

    def longer(self, times: int) -> "SameDistance":
        """Return the task at `times` times the length, with the same distances."""
        return replace(self, length=times * self.length)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols, the distances and the beginnings of the examples."""
        inputs = torch.randint(self.symbols, (count, self.length), generator=generator)
        distance = torch.randint(1, self.distances + 1, (count, 1), generator=generator)
        first = torch.randint(self.length // 4, (count, 1), generator=generator)
        inputs.scatter_(1, first, self.symbols).scatter_(1, first + distance, self.symbols + 1)
        source = torch.arange(self.length) - distance
        answers = inputs.gather(1, source.clamp(min=0))
        targets = answers.where(source > first + distance, IGNORE_INDEX)
        return Batch(inputs, targets, {"distance": distance.expand_as(inputs)})
