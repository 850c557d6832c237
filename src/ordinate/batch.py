"""What one step of training reads, and what should be said of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

# a target at places where nothing is asked; losses leave it out
SILENT = -100


@dataclass(frozen=True, eq=False)
class Batch:
    """Some sequences, or images, and what a model should say at each of their places.

    Args:
        inputs: the tokens of each sequence; or images (b, channels, height, width).
        targets: what is to be said at each place; SILENT where nothing is asked. Of an image, its class.
        slices: by name, a number for each place by which scores are broken down, such as the distance of the answer.
        real: which tokens are real and no padding; None: all.
        source: what is read before, from both sides: the sentence to translate; None: nothing.
        source_real: which tokens of it are real; None: all.
    """

    inputs: Shaped[Tensor, "b ..."]
    targets: Int[Tensor, "b *n"]
    slices: Mapping[str, Int[Tensor, "b *n"]] = field(default_factory=dict)
    real: Bool[Tensor, "b n"] | None = None
    source: Int[Tensor, "b m"] | None = None
    source_real: Bool[Tensor, "b m"] | None = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What it holds, by name, other than slices."""
        held = {name.name: getattr(self, name.name) for name in fields(self) if name.name != "slices"}
        return {name: value for name, value in held.items() if value is not None}

    def to(self, device: torch.device) -> "Batch":
        """The same on this device."""
        slices = {name: value.to(device) for name, value in self.slices.items()}
        return Batch(**{name: value.to(device) for name, value in self.tensors.items()}, slices=slices)

    def split(self, count: int) -> "list[Batch]":
        """The same in batches of at most so many sequences."""
        parts = {name: value.split(count) for name, value in self.tensors.items()}
        slices = {name: value.split(count) for name, value in self.slices.items()}
        return [
            Batch(
                **{name: values[part] for name, values in parts.items()},
                slices={name: values[part] for name, values in slices.items()},
            )
            for part in range(len(parts["inputs"]))
        ]
