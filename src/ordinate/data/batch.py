"""A training batch: inputs and targets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

# target at positions without a prediction; the loss ignores them (ignore_index of cross_entropy)
IGNORE_INDEX = -100


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of sequences or images with their targets.

    Args:
        inputs: token ids of each sequence; or images (b, channels, height, width).
        targets: target id at each position, IGNORE_INDEX where there is none; for images, the class.
        slices: by name, an integer at each position by which scores are broken down (such as the distance to the
            answer).
        token_mask: padding mask, True at real tokens; None: no padding.
        source: source tokens of an encoder-decoder (the sentence to translate); None: no source.
        source_token_mask: padding mask of the source, True at real tokens; None: no padding.
    """

    inputs: Shaped[Tensor, "b ..."]
    targets: Int[Tensor, "b *n"]
    slices: Mapping[str, Int[Tensor, "b *n"]] = field(default_factory=dict)
    token_mask: Bool[Tensor, "b n"] | None = None
    source: Int[Tensor, "b m"] | None = None
    source_token_mask: Bool[Tensor, "b m"] | None = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by field name, without slices."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "slices"}
        return {name: value for name, value in values.items() if value is not None}

    def to(self, device: torch.device) -> "Batch":
        """Return a copy on this device; from pinned memory it is made while the process goes on."""
        return self._each(lambda x: x.to(device, non_blocking=x.is_pinned()))

    def pin_memory(self) -> "Batch":
        """Return a copy in pinned memory, from which a GPU copies by itself."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        slices = {name: change(value) for name, value in self.slices.items()}
        return Batch(**{name: change(value) for name, value in self.tensors.items()}, slices=slices)

    def split(self, count: int) -> "list[Batch]":
        """Split into batches of at most `count` sequences."""
        parts = {name: value.split(count) for name, value in self.tensors.items()}
        slices = {name: value.split(count) for name, value in self.slices.items()}
        return [
            Batch(
                **{name: values[part] for name, values in parts.items()},
                slices={name: values[part] for name, values in slices.items()},
            )
            for part in range(len(parts["inputs"]))
        ]
