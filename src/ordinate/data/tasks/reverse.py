"""The reverse task."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from ordinate.data.tasks._symbol_sequence import Symbols, SymbolSequence


@dataclass(frozen=True, kw_only=True)
class Reverse(SymbolSequence):
    """Reverse a sequence of random symbols after a separator.

        a b c ! c b  ->  c b a, from the separator on, predicted autoregressively

    The distance to the target symbol grows by two tokens per step, while in copying it is constant. Sliced by
    `distance` from the symbol to the position that predicts it [tokens].

    Args:
        count: number of symbols to reverse.
        symbols: size of the symbol alphabet.
    Raises:
        ValueError: nothing to reverse, or fewer than two different symbols.
    Source: Grefenstette et al. 2015, section 4.1, https://arxiv.org/abs/1506.02516.
    Departs: a fixed count.
    """

    def reorder(self, given: Symbols) -> Symbols:
        return given.flip(1)

    def slices_at(self, index: Int[Tensor, "n"]) -> dict[str, Int[Tensor, "n"]]:
        return {"distance": 2 * index + 1}
