"""Sorting and reversing strings of varied length, in training short ones: the tasks of length generalisation."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ordinate.core.shapes import Ids, Logits
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task

SYMBOLS = 32
# longest strings of training, and those that are read afterwards
TRAINED, LONGER = 10, 20
TEXTS = 256

Reorder = Callable[[Ids], Ids]
Model = Callable[[Ids], Logits]


def ascending(given: Ids) -> Ids:
    """Return each string in the order of its symbols."""
    return given.sort(1).values


def backwards(given: Ids) -> Ids:
    """Return each string from its end."""
    return given.flip(1)


@dataclass(frozen=True)
class VariedLengths(Task):
    """Strings of different symbols, a separator, and the string again in another order; a batch has one length.

    Args:
        reorder: gives the order.
    """

    reorder: Reorder

    @property
    def vocabulary(self) -> int:
        """Ids of the symbols, then of the separator."""
        return SYMBOLS + 1

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        length = int(torch.randint(1, TRAINED + 1, (), generator=generator))
        return strings(generator, count, length, self.reorder)


def strings(generator: torch.Generator, count: int, length: int, reorder: Reorder) -> Batch:
    """Draw strings of one length, each again after a separator; the symbols after it are the targets."""
    given = torch.rand(count, SYMBOLS, generator=generator).argsort(1)[:, :length]
    asked = reorder(given)
    inputs = torch.cat([given, torch.full((count, 1), SYMBOLS), asked[:, :-1]], 1)
    return Batch(inputs, torch.cat([torch.full_like(given, IGNORE_INDEX), asked], 1))


def accuracy(model: Model, length: int, reorder: Reorder) -> float:
    """Return the share of symbols that a model gives rightly after the true symbols before, new strings."""
    batch = strings(torch.Generator().manual_seed(length), TEXTS, length, reorder)
    return answered(model(batch.inputs).argmax(-1), batch.targets)


def answered(given: Ids, targets: Ids) -> float:
    """Return the share of targets that were given."""
    asked = targets != IGNORE_INDEX
    return float((given == targets)[asked].double().mean())
