"""Biases on the scores that models not ours compute from lengths: asked for other positions."""

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.anatomy.positions import Change, Places, Way, one_row
from ordinate.anatomy.replaced import replaced


@dataclass(eq=False)
class Bias(Way):
    """A function makes a bias for positions counted from 0: that of a longer text is picked from.

    Args:
        owner: has the function: a module of Python, or a layer.
    """

    owner: Any

    name = ""

    def changes(self, positions: Places) -> list[Change]:
        """Another bias."""
        original = getattr(self.owner, self.name)

        def moved(*given: Any, **named: Any) -> Tensor:
            return self.picked(original, positions, *given, **named)

        return [replaced(self.owner, self.name, moved)]

    @abstractmethod
    def picked(self, original: Callable[..., Tensor], positions: Places, *given: Any, **named: Any) -> Tensor:
        """The bias at these positions."""


class Buckets(Bias):
    """Relative positions in buckets (T5)."""

    kind, name = "relative", "compute_bias"

    def picked(self, original: Callable[..., Tensor], positions: Places, *given: Any, **named: Any) -> Tensor:
        """A number for each head and pair."""
        positions = _near(positions)
        length = int(positions.max()) + 1
        whole = original(length, length, **{name: x for name, x in named.items() if name == "device"})
        return whole[0][:, positions[:, :, None], positions[:, None, :]].transpose(0, 1)


class KeySlopes(Bias):
    """ALiBi as Bloom and Falcon write it: a number for each key."""

    kind, name = "alibi", "build_alibi_tensor"

    def picked(self, original: Callable[..., Tensor], positions: Places, *given: Any, **named: Any) -> Tensor:
        """A number for each head and key of each row."""
        mask, *rest = given
        rows, length = mask.shape[0], int(positions.max()) + 1
        whole = original(mask.new_ones(rows, length), *rest, **named).unflatten(0, (rows, -1))[:, :, 0]
        places = positions.expand(rows, -1)[:, None].expand(-1, whole.shape[1], -1)
        return whole.gather(2, places).flatten(0, 1)[:, None]


class HeadSlopes(Bias):
    """ALiBi as MPT writes it: one row of numbers for a whole batch."""

    kind, name, alike = "alibi", "build_mpt_alibi_tensor", True

    def picked(self, original: Callable[..., Tensor], positions: Places, *given: Any, **named: Any) -> Tensor:
        """A number for each head and key."""
        heads, _, *rest = given
        return original(heads, int(positions.max()) + 1, *rest, **named)[..., one_row(positions)]


class Distances(Bias):
    """Distances by which DeBERTa looks up vectors: one table of them for a whole batch."""

    kind, name, alike = "relative", "build_relative_position", True

    def picked(self, original: Callable[..., Tensor], positions: Places, *given: Any, **named: Any) -> Tensor:
        """A distance for each pair."""
        row = one_row(_near(positions))
        long = torch.empty(int(row.max()) + 1, 1, device=positions.device)
        return original(long, long, *given[2:], **named)[:, row[:, None], row[None]]


def _near(positions: Places) -> Places:
    """The same distances, counted from the first position: a table of all pairs up to a far one would be huge."""
    return positions - positions.min()


def find_biases(model: nn.Module) -> Iterable[Bias]:
    """Every function of a model that may make such a bias."""
    for module in model.modules():
        if isinstance(getattr(module, "relative_attention_bias", None), nn.Embedding) and hasattr(
            module, Buckets.name
        ):
            yield Buckets(module)
    space = sys.modules[type(model).__module__]
    for kind in (KeySlopes, HeadSlopes, Distances):
        if hasattr(space, kind.name):
            yield kind(space)
