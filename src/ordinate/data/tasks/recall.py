"""Associative recall."""

from dataclasses import dataclass, replace

import torch

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task


@dataclass(frozen=True, kw_only=True)
class Recall(Task):
    """Associative recall: key-value pairs with repeated keys; at each repeated key its value is the target.

        b 4 a 7 b 4 c 1 a 7 b  ->  at the second b: 4, at the second a: 7, at the last b: 4

    The value of a key is fixed within a sequence and drawn anew for each sequence. Sliced by `distance` to the key's
    previous occurrence [tokens] and by `keys`: number of distinct keys so far.

    Args:
        pairs: key-value pairs in a sequence; the last one without its value.
        keys: number of different keys.
        values: number of different values.
    Raises:
        ValueError: fewer than two pairs, no key, or fewer than two values.
    Source: Fu et al. 2023, Hungry Hungry Hippos, section 3.1, https://arxiv.org/abs/2212.14052.
    Departs: a target at every repeated key; in the paper at the last key only, from which small models learn slowly.
    """

    pairs: int = 16
    keys: int = 16
    values: int = 16

    def __post_init__(self) -> None:
        need_counts(pairs=self.pairs, keys=self.keys, values=self.values)
        need(self.pairs >= 2, "recall needs at least two pairs", f"got pairs={self.pairs}", "give 2 or more")
        need(self.keys > 0, "recall needs a key", f"got keys={self.keys}", "give 1 or more")
        need(self.values > 1, "recall needs two different values", f"got values={self.values}", "give 2 or more")

    @property
    def length(self) -> int:
        """Two tokens per pair, without the last value [tokens]."""
        return 2 * self.pairs - 1

    @property
    def vocabulary(self) -> int:
        """Ids of the keys, then of the values."""
        return self.keys + self.values

    @property
    def baseline_accuracy(self) -> float:
        return 1 / self.values

    def longer(self, times: int) -> "Recall":
        """Return the task with `times` times as many pairs, of the same keys."""
        return replace(self, pairs=times * self.pairs)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the value of each key, and the keys; the last key is a repeated one."""
        value_of = self.keys + torch.randint(self.values, (count, self.keys), generator=generator)
        keys = torch.randint(self.keys, (count, self.pairs), generator=generator)
        again = torch.randint(self.pairs - 1, (count, 1), generator=generator)
        keys[:, -1:] = keys.gather(1, again)
        values = value_of.gather(1, keys)
        inputs = torch.stack([keys, values], 2).flatten(1)[:, :-1]
        # for each pair, how many pairs ago its key last occurred; 0: never
        order = torch.arange(self.pairs)
        same = (keys[:, :, None] == keys[:, None, :]) & (order[:, None] > order)
        last = torch.where(same, order, -1).amax(2)
        ago = torch.where(last >= 0, order - last, 0)
        targets = torch.full_like(inputs, IGNORE_INDEX)
        targets[:, ::2] = torch.where(last >= 0, values, IGNORE_INDEX)
        slices = {"distance": 2 * ago, "keys": (last < 0).cumsum(1)}
        return Batch(inputs, targets, {name: _at_keys(numbers) for name, numbers in slices.items()})


def _at_keys(numbers: torch.Tensor) -> torch.Tensor:
    """Expand one number per pair to tokens: the number at its key, 0 at its value."""
    return torch.stack([numbers, torch.zeros_like(numbers)], 2).flatten(1)[:, :-1]
