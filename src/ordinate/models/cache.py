"""What a decoder remembers of the tokens it has read."""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.mixer import State


@dataclass
class Cache:
    """The memory of each layer, and where the tokens stand: positions live beside keys and values.

    Make an empty one, hand it to the model with each piece of text, and it grows by that piece.

    Args:
        states: the memory of each layer; empty before the first token.
        where: the geometry of everything read so far; None before the first token.
    """

    states: list[State | None] = field(default_factory=list)
    where: Geometry | None = None

    def __len__(self) -> int:
        """How many tokens it holds."""
        return 0 if self.where is None else self.where.shape[1]

    def place(self, new: Geometry) -> Geometry:
        """The geometry of new tokens that also see what is remembered."""
        return new if self.where is None else new.after(self.where)

    def following(self, tokens: int, device: torch.device | str | None = None) -> Geometry:
        """The geometry of the next tokens: positions go on where each row ended."""
        if self.where is None or not len(self):
            return Geometry.causal(tokens, device=device)
        return self.where.following(tokens)

    def copy(self) -> "Cache":
        """Another one that holds the same: each grows by itself from here on, and neither copies what both hold."""
        return Cache(list(self.states), self.where)

    def take(self, rows: Int[Tensor, "rows"]) -> "Cache":
        """The memory of these rows of the batch, in this order."""
        states = [None if state is None else state.take(rows) for state in self.states]
        return Cache(states, None if self.where is None else take_rows(self.where, rows))


def take_rows(where: Geometry, rows: Int[Tensor, "rows"]) -> Geometry:
    """The geometry of these rows of the batch, in this order; what serves any row is left as it is."""
    parts = {name: getattr(where, name) for name in ("q_pos", "k_pos", "q_document", "k_document")}
    taken = {name: part[rows] for name, part in parts.items() if part is not None and part.shape[0] > 1}
    return replace(where, **taken) if taken else where
