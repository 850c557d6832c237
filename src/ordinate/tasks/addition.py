"""Addition."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task

PLUS, EQUALS = 10, 11
Digits = Int[Tensor, "count digits"]
Sum = Int[Tensor, "count digits_and_one"]


@dataclass(frozen=True, kw_only=True)
class Addition(Task):
    """Add two numbers of so many digits, digit by digit, carries included.

        3 8 + 4 5 =  ->  0 8 3 written from the front, 3 8 0 from the back

    Each digit of the sum is asked for after those before it. Numbers are written with zeros in front; from the front,
    the first digit depends on all the others, and from the back each on what was said last. Sliced by `place`: which
    digit of the sum, from 0 for the ones; and by `carry`: through how many digits the carry that enters it has come.

    Args:
        digits: of each number; the sum has one more.
        backwards: whether all numbers are written from the ones on.
    Raises:
        ValueError: numbers without digits.
    Source: Lee et al. 2023, Teaching Arithmetic to Small Transformers, section 3, https://arxiv.org/abs/2307.03381.
    Departs: there only the sum is written backwards.
    """

    digits: int = 8
    backwards: bool = True

    def __post_init__(self) -> None:
        need_counts(digits=self.digits)
        need(self.digits > 0, "numbers have digits", f"got digits={self.digits}", "give 1 or more")

    @property
    def length(self) -> int:
        """Two numbers, two signs, and all but the last digit of the sum [tokens]."""
        return 3 * self.digits + 2

    @property
    def vocabulary(self) -> int:
        """The digits and two signs."""
        return 12

    @property
    def chance(self) -> float:
        """Digits are equally likely but the sum's first, which is 0 or 1: 0 is the likeliest of all."""
        first = (1 + 10.0**-self.digits) / 2
        return (self.digits / 10 + first) / (self.digits + 1)

    def longer(self, times: int) -> "Addition":
        """So many times as many digits."""
        return replace(self, digits=times * self.digits)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the digits, from the ones on."""
        size = 2, count, self.digits
        one, other = torch.randint(10, size, generator=generator)
        total, carry = _add(one, other)
        place = torch.arange(self.digits + 1).expand_as(total)
        if not self.backwards:
            one, other, total, carry, place = (part.flip(1) for part in (one, other, total, carry, place))
        plus, equals = (torch.full((count, 1), sign) for sign in (PLUS, EQUALS))
        inputs = torch.cat([one, plus, other, equals, total[:, :-1]], 1)
        front = torch.full((count, 2 * self.digits + 1), SILENT)
        slices = {"place": place, "carry": carry}
        aside = torch.zeros_like(front)
        return Batch(
            inputs,
            torch.cat([front, total], 1),
            {name: torch.cat([aside, numbers], 1) for name, numbers in slices.items()},
        )


def _add(one: Digits, other: Digits) -> tuple[Sum, Sum]:
    """The digits of the sums from the ones on, and through how many digits the carry into each has come."""
    total, chain = [], [torch.zeros_like(one[:, 0])]
    for a, b in zip(one.unbind(1), other.unbind(1), strict=True):
        digit = a + b + (chain[-1] > 0)
        total.append(digit % 10)
        chain.append(torch.where(digit > 9, chain[-1] + 1, 0))
    return torch.stack([*total, (chain[-1] > 0).long()], 1), torch.stack(chain, 1)
