"""The sorting task."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.core.checks import need
from ordinate.data.tasks._symbol_sequence import Symbols, SymbolSequence


@dataclass(frozen=True, kw_only=True)
class Sorting(SymbolSequence):
    """Sort distinct random symbols by their ids.

        c a b ! a b  ->  a b c, from the separator on, predicted autoregressively

    The position of a symbol is irrelevant here, in contrast to copying. Sliced by `place`: rank of the target symbol,
    from 1.

    Args:
        count: number of symbols to sort.
        symbols: size of the symbol alphabet.
    Raises:
        ValueError: fewer than two symbols to sort, or count above symbols.
    """

    symbols: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        need(self.count > 1, "sorting needs at least two symbols", f"got count={self.count}", "give 2 or more")
        need(
            self.count <= self.symbols,
            "symbols must be distinct, so count must not exceed symbols",
            f"got count={self.count} of symbols={self.symbols}",
            "give more symbols, or a smaller count",
        )

    def sample_symbols(self, generator: torch.Generator, rows: int) -> Symbols:
        """Draw distinct symbols."""
        return torch.rand(rows, self.symbols, generator=generator).argsort(1)[:, : self.count]

    def reorder(self, given: Symbols) -> Symbols:
        return given.sort(1).values

    def slices_at(self, index: Int[Tensor, "n"]) -> dict[str, Int[Tensor, "n"]]:
        return {"place": index + 1}
