"""What a decoder remembers of the tokens it has read."""

from dataclasses import dataclass, field

import torch

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
