"""Relative position biases of external models (T5 buckets, ALiBi, DeBERTa), evaluated at other positions."""

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.probing.instrumentation.patching import patched_attribute
from ordinate.probing.instrumentation.position_inputs import Patch, PositionIndices, PositionInput, shared_positions


@dataclass(eq=False)
class RelativeBias(PositionInput):
    """A function that computes a bias for positions 0, 1, 2, ...; other positions are indexed from a longer one.

    Args:
        owner: the Python module or the layer that has the function.
    """

    owner: Any

    name = ""

    def patches(self, positions: PositionIndices) -> list[Patch]:
        original = getattr(self.owner, self.name)

        def moved(*given: Any, **named: Any) -> Tensor:
            return self.at_positions(original, positions, *given, **named)

        return [patched_attribute(self.owner, self.name, moved)]

    @abstractmethod
    def at_positions(
        self, original: Callable[..., Tensor], positions: PositionIndices, *given: Any, **named: Any
    ) -> Tensor:
        """Return the bias at these positions."""


class T5Buckets(RelativeBias):
    """T5: a learned bias for each bucket of relative positions, computed for positions 0 to n - 1 only."""

    kind, name = "relative", "compute_bias"

    def at_positions(
        self, original: Callable[..., Tensor], positions: PositionIndices, *given: Any, **named: Any
    ) -> Tensor:
        positions = _near(positions)
        length = int(positions.max()) + 1
        whole = original(length, length, **{name: x for name, x in named.items() if name == "device"})
        return whole[0][:, positions[:, :, None], positions[:, None, :]].transpose(0, 1)


class KeyAlibi(RelativeBias):
    """ALiBi in Bloom and Falcon: one number for each key, in each row of the batch."""

    kind, name = "alibi", "build_alibi_tensor"

    def at_positions(
        self, original: Callable[..., Tensor], positions: PositionIndices, *given: Any, **named: Any
    ) -> Tensor:
        mask, *rest = given
        rows, length = mask.shape[0], int(positions.max()) + 1
        whole = original(mask.new_ones(rows, length), *rest, **named).unflatten(0, (rows, -1))[:, :, 0]
        index = positions.expand(rows, -1)[:, None].expand(-1, whole.shape[1], -1)
        return whole.gather(2, index).flatten(0, 1)[:, None]


class MptAlibi(RelativeBias):
    """ALiBi in MPT: one number for each head and key, shared by all rows of a batch."""

    kind, name, shared_by_batch = "alibi", "build_mpt_alibi_tensor", True

    def at_positions(
        self, original: Callable[..., Tensor], positions: PositionIndices, *given: Any, **named: Any
    ) -> Tensor:
        heads, _, *rest = given
        return original(heads, int(positions.max()) + 1, *rest, **named)[..., shared_positions(positions)]


class DebertaOffsets(RelativeBias):
    """Relative positions of DeBERTa, which index its vectors: one matrix for all rows of a batch."""

    kind, name, shared_by_batch = "relative", "build_relative_position", True

    def at_positions(
        self, original: Callable[..., Tensor], positions: PositionIndices, *given: Any, **named: Any
    ) -> Tensor:
        row = shared_positions(_near(positions))
        long = torch.empty(int(row.max()) + 1, 1, device=positions.device)
        return original(long, long, *given[2:], **named)[:, row[:, None], row[None]]


def _near(positions: PositionIndices) -> PositionIndices:
    """Shift positions to start at 0: offsets are unchanged, and the matrix of all pairs stays small."""
    return positions - positions.min()


def find_biases(model: nn.Module) -> Iterable[RelativeBias]:
    """Yield every function of a model that may compute such a bias."""
    for module in model.modules():
        if isinstance(getattr(module, "relative_attention_bias", None), nn.Embedding) and hasattr(
            module, T5Buckets.name
        ):
            yield T5Buckets(module)
    space = sys.modules[type(model).__module__]
    for kind in (KeyAlibi, MptAlibi, DebertaOffsets):
        if hasattr(space, kind.name):
            yield kind(space)
