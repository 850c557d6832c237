"""Associative recall."""

from dataclasses import dataclass, replace

import torch

from ordinate.checks import need, need_counts
from ordinate.task import SILENT, Batch, Task


@dataclass(frozen=True, kw_only=True)
class Recall(Task):
    """Which value stood behind this key? Pairs of a key and a value, then one of the keys again.

        k1 v1 k2 v2 .. kn vn k  ->  the value behind k, asked once, at the end

    Keys differ from each other, values need not. Sliced by `distance`, from the first time the key is read to the last
    [tokens].

    Args:
        pairs: pairs in a sequence.
        keys: different keys there are.
        values: different values there are.
    Raises:
        ValueError: no pair, or fewer keys than pairs.
    Source: Fu et al. 2023, Hungry Hungry Hippos, section 3.1, https://arxiv.org/abs/2212.14052.
    Departs: there a key may come several times.
    """

    pairs: int = 8
    keys: int = 32
    values: int = 32

    def __post_init__(self) -> None:
        need_counts(pairs=self.pairs, keys=self.keys, values=self.values)
        need(self.pairs > 0, "recall needs a pair", f"got pairs={self.pairs}", "give 1 or more")
        need(
            self.keys >= self.pairs,
            "recall needs a key for each pair",
            f"got {self.keys} keys for {self.pairs} pairs",
            "give more keys, or fewer pairs",
        )
        need(self.values > 1, "recall needs values to tell apart", f"got values={self.values}", "give 2 or more")

    @property
    def length(self) -> int:
        """A key and a value for each pair, and the key that is asked for [tokens]."""
        return 2 * self.pairs + 1

    @property
    def vocabulary(self) -> int:
        """Keys, then values."""
        return self.keys + self.values

    @property
    def chance(self) -> float:
        """Values are equally likely."""
        return 1 / self.values

    def longer(self, times: int) -> "Recall":
        """So many times as many pairs."""
        return replace(self, pairs=times * self.pairs)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw keys without replacement, values with it, and which pair is asked for."""
        keys = torch.rand(count, self.keys, generator=generator).argsort(1)[:, : self.pairs]
        values = self.keys + torch.randint(self.values, (count, self.pairs), generator=generator)
        asked = torch.randint(self.pairs, (count, 1), generator=generator)
        pairs = torch.stack([keys, values], 2).flatten(1)
        inputs = torch.cat([pairs, keys.gather(1, asked)], 1)
        targets = torch.full_like(inputs, SILENT)
        targets[:, -1:] = values.gather(1, asked)
        return Batch(inputs, targets, {"distance": (2 * (self.pairs - asked)).expand_as(inputs)})
