"""The contract of training tasks: an endless stream of batches, each a function of a random generator."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch

from ordinate.core.checks import need
from ordinate.data.batch import Batch

ModelKind = Literal["decoder", "encoder", "encoder-decoder", "vision"]


class Task(ABC):
    """A training task; the same generator state always gives the same batch.

    Must: `vocabulary` (number of token ids in inputs and targets) and `sample`.
    May: `model_kind`; for studies `baseline_accuracy`, and `longer` if its length is variable.
    """

    model_kind: ClassVar[ModelKind] = "decoder"
    """The model kind that the task is for."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Vocabulary size."""

    @abstractmethod
    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw `count` sequences; randomness comes from the generator only."""

    @property
    def length(self) -> int:
        """Sequence length [tokens]."""
        return self.sample(torch.Generator(), 1).inputs.shape[1]

    @property
    def baseline_accuracy(self) -> float | None:
        """Accuracy of always giving the most frequent answer; None if accuracy is not measured."""
        return None

    def longer(self, times: int) -> "Task":
        """Return the task with sequences `times` times as long and the same vocabulary.

        Raises:
            ValueError: the length is fixed, or the vocabulary is too small for longer sequences.
        """
        need(
            times == 1,
            f"{type(self).__name__.lower()} has a fixed length",
            f"got {times} times the length",
            "use 1 times the length",
        )
        return self
