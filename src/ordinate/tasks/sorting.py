"""Sorting."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.checks import need
from ordinate.repetition import Repetition, Symbols


@dataclass(frozen=True, kw_only=True)
class Sorting(Repetition):
    """Say different symbols again in their own order, whatever the order in which they came.

        c a b ! a b  ->  a b c, from the sign on, each after what came before it

    Where a symbol stood says nothing here: the contrast to copying. Sliced by `place`: which of the sorted symbols is
    asked for, from 1.

    Args:
        count: symbols to sort.
        symbols: different symbols there are.
    Raises:
        ValueError: fewer than two symbols to sort, or fewer there than are to be drawn.
    """

    symbols: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        need(self.count > 1, "sorting needs symbols to sort", f"got count={self.count}", "give 2 or more")
        need(
            self.count <= self.symbols,
            "symbols are sorted without repetition",
            f"got count={self.count} of symbols={self.symbols}",
            "give more symbols, or a smaller count",
        )

    def draw(self, generator: torch.Generator, rows: int) -> Symbols:
        """The symbols that are said, each once."""
        return torch.rand(rows, self.symbols, generator=generator).argsort(1)[:, : self.count]

    def again(self, said: Symbols) -> Symbols:
        """From the least to the greatest."""
        return said.sort(1).values

    def sliced(self, asked: Int[Tensor, "n"]) -> dict[str, Int[Tensor, "n"]]:
        """By the place among the sorted."""
        return {"place": asked + 1}
