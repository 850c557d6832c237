"""Decoding state of a layer with two mixers."""

from dataclasses import dataclass

from jaxtyping import Bool, Int
from torch import Tensor

from ordinate.mixers._mixer import MixerState


@dataclass(frozen=True, eq=False)
class PairState(MixerState):
    """Decoding states of the two mixers of a layer.

    Args:
        first: that of the first mixer; None: it has none.
        second: that of the second.
    """

    first: MixerState | None
    second: MixerState | None

    @property
    def batch_size(self) -> int:
        """Batch size; 0 without any state."""
        return next((state.batch_size for state in (self.first, self.second) if state is not None), 0)

    def select_rows(self, rows: Int[Tensor, "rows"]) -> "PairState":
        """Select rows of the batch, in the given order."""
        first, second = (None if one is None else one.select_rows(rows) for one in (self.first, self.second))
        return PairState(first, second)

    def fill_rows(self, rows: Bool[Tensor, "b"], value: float) -> "PairState":
        """Fill the floating-point numbers of some rows with this value."""
        first, second = (None if one is None else one.fill_rows(rows, value) for one in (self.first, self.second))
        return PairState(first, second)
