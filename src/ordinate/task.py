"""What a model is trained on: an endless supply of batches, each a function of a generator."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Some sequences and what the model should say at each of their places."""

    inputs: Int[Tensor, "b n"]
    targets: Int[Tensor, "b n"]


class Task(ABC):
    """Something to learn. The same generator state always gives the same batch.

    Must: `vocabulary` (how many different ids the inputs and targets use) and `sample`.
    """

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """How many different token ids there are."""

    @abstractmethod
    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """`count` sequences drawn with this generator and nothing else."""
