"""Multi-digit addition."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task

PLUS, EQUALS = 10, 11
Digits = Int[Tensor, "count digits"]
Sum = Int[Tensor, "count digits_and_one"]


@dataclass(frozen=True, kw_only=True)
class Addition(Task):
    """Addition of two numbers of `digits` digits, predicted digit by digit.

        3 8 + 4 5 =  ->  0 8 3 most significant digit first; 3 8 0 least significant digit first (backwards)

    The sum is predicted autoregressively. Numbers are zero-padded. Most significant digit first, the first digit
    depends on all others; backwards, each digit depends on two digits and a carry. Sliced by `place`: digit of the
    sum, 0 for the ones; and by `carry`: length of the carry chain that enters the digit.

    Args:
        digits: digits of each number; the sum has one more.
        backwards: whether all numbers are written least significant digit first.
    Raises:
        ValueError: digits is 0.
    Source: Lee et al. 2023, Teaching Arithmetic to Small Transformers, section 3, https://arxiv.org/abs/2307.03381.
    Departs: in the paper only the sum is reversed.
    """

    digits: int = 8
    backwards: bool = True

    def __post_init__(self) -> None:
        need_counts(digits=self.digits)
        need(self.digits > 0, "numbers need digits", f"got digits={self.digits}", "give 1 or more")

    @property
    def length(self) -> int:
        """Two numbers, `+` and `=`, and all but the last digit of the sum [tokens]."""
        return 3 * self.digits + 2

    @property
    def vocabulary(self) -> int:
        """Ids of the ten digits, then of `+` and `=`."""
        return 12

    @property
    def baseline_accuracy(self) -> float:
        """Accuracy of always answering 0: all digits are uniform except the most significant, which is 0 or 1."""
        first = (1 + 10.0**-self.digits) / 2
        return (self.digits / 10 + first) / (self.digits + 1)

    def longer(self, times: int) -> "Addition":
        """Return the task with `times` times as many digits."""
        return replace(self, digits=times * self.digits)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the digits, least significant first."""
        size = 2, count, self.digits
        one, other = torch.randint(10, size, generator=generator)
        total, carry = _add(one, other)
        place = torch.arange(self.digits + 1).expand_as(total)
        if not self.backwards:
            one, other, total, carry, place = (part.flip(1) for part in (one, other, total, carry, place))
        plus, equals = (torch.full((count, 1), sign) for sign in (PLUS, EQUALS))
        inputs = torch.cat([one, plus, other, equals, total[:, :-1]], 1)
        front = torch.full((count, 2 * self.digits + 1), IGNORE_INDEX)
        slices = {"place": place, "carry": carry}
        zeros = torch.zeros_like(front)
        return Batch(
            inputs,
            torch.cat([front, total], 1),
            {name: torch.cat([zeros, numbers], 1) for name, numbers in slices.items()},
        )


def _add(one: Digits, other: Digits) -> tuple[Sum, Sum]:
    """Return the digits of the sums, least significant first, and the length of the carry chain into each."""
    total, chain = [], [torch.zeros_like(one[:, 0])]
    for a, b in zip(one.unbind(1), other.unbind(1), strict=True):
        digit = a + b + (chain[-1] > 0)
        total.append(digit % 10)
        chain.append(torch.where(digit > 9, chain[-1] + 1, 0))
    return torch.stack([*total, (chain[-1] > 0).long()], 1), torch.stack(chain, 1)
