"""Copying."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from ordinate.repetition import Repetition, Symbols


@dataclass(frozen=True, kw_only=True)
class Copy(Repetition):
    """Say again what was said, from the first to the last.

        a b c ! a b  ->  a b c, from the sign on, each after what came before it

    Sliced by `place`: which of the symbols is asked for, from 1.

    Args:
        count: symbols to copy.
        symbols: different symbols there are.
    Raises:
        ValueError: nothing to copy, or fewer than two symbols.
    Source: Graves, Wayne and Danihelka 2014, Neural Turing Machines, section 4.1, https://arxiv.org/abs/1410.5401.
    Departs: symbols where there are vectors of bits; a fixed count.
    """

    def again(self, said: Symbols) -> Symbols:
        """As they were said."""
        return said

    def sliced(self, asked: Int[Tensor, "n"]) -> dict[str, Int[Tensor, "n"]]:
        """By the place of the symbol."""
        return {"place": asked + 1}
