"""What a model is trained on: an endless supply of batches, each a function of a generator."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.checks import need

# a target at places where nothing is asked; losses leave it out
SILENT = -100


@dataclass(frozen=True, eq=False)
class Batch:
    """Some sequences and what the model should say at each of their places.

    Args:
        inputs: the sequences.
        targets: what is to be said at each place; SILENT where nothing is asked.
        slices: by name, a number for each place by which scores are broken down, such as the distance of the answer.
    """

    inputs: Int[Tensor, "b n"]
    targets: Int[Tensor, "b n"]
    slices: Mapping[str, Int[Tensor, "b n"]] = field(default_factory=dict)


class Task(ABC):
    """Something to learn. The same generator state always gives the same batch.

    Must: `vocabulary` (how many different ids the inputs and targets use) and `sample`.
    May, for studies: `chance`, and `longer` if it has lengths.
    """

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """How many different token ids there are."""

    @abstractmethod
    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """`count` sequences drawn with this generator and nothing else."""

    @property
    def length(self) -> int:
        """Tokens of a sequence."""
        return self.sample(torch.Generator(), 1).inputs.shape[1]

    @property
    def chance(self) -> float | None:
        """The share of questions that the likeliest answer gets right; None where answers are not measured."""
        return None

    def longer(self, times: int) -> "Task":
        """The same task with sequences so many times as long, in the same vocabulary.

        Raises:
            ValueError: it has one length only, or has no room for more.
        """
        need(times == 1, f"{type(self).__name__.lower()} has one length only", f"got {times} times", "read at 1 time")
        return self
