"""Associative recall."""

from dataclasses import dataclass, replace

import torch

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task


@dataclass(frozen=True, kw_only=True)
class Recall(Task):
    """Which value stood behind this key the last time? Pairs of a key and its value, keys coming again and again.

        b 4 a 7 b 4 c 1 a 7 b  ->  at the second b: 4, at the second a: 7, at the last b: 4

    A key keeps its value to the end of the sequence, and has another in the next. The value is asked at each key that
    came before. Sliced by `distance` from the key's last time [tokens] and by `keys`: how many keys there have been
    so far.

    Args:
        pairs: pairs in a sequence; of the last, the key alone.
        keys: different keys there are.
        values: different values there are.
    Raises:
        ValueError: fewer than two pairs, no key, or fewer than two values.
    Source: Fu et al. 2023, Hungry Hungry Hippos, section 3.1, https://arxiv.org/abs/2212.14052.
    Departs: asked at each key that comes again; there at the last one only, from which little models learn slowly.
    """

    pairs: int = 16
    keys: int = 16
    values: int = 16

    def __post_init__(self) -> None:
        need_counts(pairs=self.pairs, keys=self.keys, values=self.values)
        need(self.pairs >= 2, "recall needs a pair to recall, and a key", f"got pairs={self.pairs}", "give 2 or more")
        need(self.keys > 0, "recall needs a key", f"got keys={self.keys}", "give 1 or more")
        need(self.values > 1, "recall needs values to tell apart", f"got values={self.values}", "give 2 or more")

    @property
    def length(self) -> int:
        """A key and a value for each pair, and the last key [tokens]."""
        return 2 * self.pairs - 1

    @property
    def vocabulary(self) -> int:
        """Keys, then values."""
        return self.keys + self.values

    @property
    def chance(self) -> float:
        """Values are equally likely."""
        return 1 / self.values

    def longer(self, times: int) -> "Recall":
        """So many times as many pairs, of the same keys."""
        return replace(self, pairs=times * self.pairs)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the value of each key, and the keys; the last is one of those before it."""
        value_of = self.keys + torch.randint(self.values, (count, self.keys), generator=generator)
        keys = torch.randint(self.keys, (count, self.pairs), generator=generator)
        again = torch.randint(self.pairs - 1, (count, 1), generator=generator)
        keys[:, -1:] = keys.gather(1, again)
        values = value_of.gather(1, keys)
        inputs = torch.stack([keys, values], 2).flatten(1)[:, :-1]
        # for each pair, how many pairs ago its key came last; 0: never
        order = torch.arange(self.pairs)
        same = (keys[:, :, None] == keys[:, None, :]) & (order[:, None] > order)
        last = torch.where(same, order, -1).amax(2)
        ago = torch.where(last >= 0, order - last, 0)
        targets = torch.full_like(inputs, SILENT)
        targets[:, ::2] = torch.where(last >= 0, values, SILENT)
        slices = {"distance": 2 * ago, "keys": (last < 0).cumsum(1)}
        return Batch(inputs, targets, {name: _at_keys(numbers) for name, numbers in slices.items()})


def _at_keys(numbers: torch.Tensor) -> torch.Tensor:
    """A number for each pair at the place of its key, 0 at the places of values."""
    return torch.stack([numbers, torch.zeros_like(numbers)], 2).flatten(1)[:, :-1]
