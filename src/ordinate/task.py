"""What a model is trained on: an endless supply of batches, each a function of a generator."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch

from ordinate.batch import Batch
from ordinate.checks import need

Reader = Literal["decoder", "encoder", "encoder-decoder", "vision"]


class Task(ABC):
    """Something to learn. The same generator state always gives the same batch.

    Must: `vocabulary` (how many different ids the inputs and targets use) and `sample`.
    May: `reader` (which kind of model learns it); for studies `chance`, and `longer` if it has lengths.
    """

    reader: ClassVar[Reader] = "decoder"
    """The kind of model that learns it."""

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
