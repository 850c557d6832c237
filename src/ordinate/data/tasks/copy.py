"""The copy task."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from ordinate.data.tasks._symbol_sequence import Symbols, SymbolSequence


@dataclass(frozen=True, kw_only=True)
class Copy(SymbolSequence):
    """Copy a sequence of random symbols after a separator.

        a b c ! a b  ->  a b c, from the separator on, predicted autoregressively

    Sliced by `place`: index of the target symbol, from 1.

    Args:
        count: number of symbols to copy.
        symbols: size of the symbol alphabet.
    Raises:
        ValueError: nothing to copy, or fewer than two different symbols.
    Source: Graves, Wayne and Danihelka 2014, Neural Turing Machines, section 4.1, https://arxiv.org/abs/1410.5401.
    Departs: symbols instead of bit vectors; a fixed count.
    """

    def reorder(self, given: Symbols) -> Symbols:
        return given

    def slices_at(self, index: Int[Tensor, "n"]) -> dict[str, Int[Tensor, "n"]]:
        return {"place": index + 1}
