"""Reversing."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from ordinate.repetition import Repetition, Symbols


@dataclass(frozen=True, kw_only=True)
class Reverse(Repetition):
    """Say again what was said, from the last to the first.

        a b c ! c b  ->  c b a, from the sign on, each after what came before it

    What is asked for moves away by two tokens with each answer, while copying keeps it at one distance. Sliced by
    `distance` from the symbol to where it is asked for [tokens].

    Args:
        count: symbols to reverse.
        symbols: different symbols there are.
    Raises:
        ValueError: nothing to reverse, or fewer than two symbols.
    Source: Grefenstette et al. 2015, section 4.1, https://arxiv.org/abs/1506.02516.
    Departs: a fixed count.
    """

    def again(self, said: Symbols) -> Symbols:
        """The last first."""
        return said.flip(1)

    def sliced(self, asked: Int[Tensor, "n"]) -> dict[str, Int[Tensor, "n"]]:
        """By how far back the symbol was said."""
        return {"distance": 2 * asked + 1}
