"""Decoding cache of a model: KV caches or recurrent states, with the geometry of the cached tokens."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.mixers._mixer import MixerState


@dataclass
class Cache:
    """Decoding cache: the state of each layer (KV cache or recurrent state) and the geometry of the cached tokens.

    Create an empty one and pass it to the model with each chunk of tokens; the model extends it in place.

    Args:
        states: state of each layer; empty before the first token.
        where: geometry of all cached tokens; None before the first token.
    """

    states: list[MixerState | None] = field(default_factory=list)
    where: Geometry | None = None

    def __len__(self) -> int:
        """Number of cached tokens."""
        return 0 if self.where is None else self.where.shape[1]

    def with_past(self, new: Geometry) -> Geometry:
        """Extend the geometry of new tokens so that they also attend to the cached tokens."""
        return new if self.where is None else new.with_past(self.where)

    def next_geometry(self, tokens: int, device: torch.device | str | None = None) -> Geometry:
        """Geometry of the next tokens, whose positions continue each row."""
        if self.where is None or not len(self):
            return Geometry.causal(tokens, device=device)
        return self.where.next_tokens(tokens)

    def copy(self) -> "Cache":
        """Shallow copy: both caches can be extended independently, and share the tensors they have in common."""
        return Cache(list(self.states), self.where)

    def select_rows(self, rows: Int[Tensor, "rows"]) -> "Cache":
        """Select rows of the batch, in the given order."""
        states = [None if state is None else state.select_rows(rows) for state in self.states]
        return Cache(states, None if self.where is None else select_rows(self.where, rows))


def select_rows(where: Geometry, rows: Int[Tensor, "rows"]) -> Geometry:
    """Select rows of a geometry; tensors that broadcast over the batch are kept."""
    parts = {name: getattr(where, name) for name in ("q_pos", "k_pos", "q_document", "k_document")}
    taken = {name: part[rows] for name, part in parts.items() if part is not None and part.shape[0] > 1}
    return changed(where, **taken) if taken else where
