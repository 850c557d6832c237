"""Image classification."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ordinate.core.checks import need
from ordinate.data.batch import Batch
from ordinate.data.task import Task


class Images(Task):
    """Image classification; images are drawn uniformly at random.

    Args:
        pixels: 0 to 255; (images, channels, height, width), in memory or memory-mapped.
        labels: class index of each image, from 0.
        classes: class names.
        shift: maximum random translation in each direction, filled with black; data augmentation for training
            [pixels].
    Raises:
        ValueError: no images, not uint8, or labels without a class name.
    """

    model_kind = "vision"

    def __init__(
        self,
        *,
        pixels: NDArray[np.uint8],
        labels: NDArray[np.integer[Any]],
        classes: tuple[str, ...],
        shift: int = 0,
    ) -> None:
        need(
            pixels.ndim == 4 and pixels.dtype == np.uint8 and len(pixels) > 0,
            "pixels must be uint8 of shape (images, channels, height, width)",
            f"got {pixels.dtype} of {pixels.shape}",
            "read them with read_image",
        )
        need(
            labels.shape == (len(pixels),),
            "each image needs a label",
            f"got labels of shape {labels.shape} for {len(pixels)} images",
            "give one label per image",
        )
        low, high = int(labels.min()), int(labels.max())
        named = low >= 0 and high < len(classes)
        need(named, f"labels must be in 0 to {len(classes) - 1}", f"got {low} to {high}", "name every class")
        need(shift >= 0, "shift must not be negative", f"got {shift}", "give 0 for no translation")
        self.pixels, self.labels, self.classes, self.shift = pixels, labels, classes, shift

    @property
    def vocabulary(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def length(self) -> int:
        """Pixels of an image, height times width."""
        return int(np.prod(self.pixels.shape[2:]))

    @property
    def baseline_accuracy(self) -> float:
        """Share of the most frequent class."""
        return int(np.bincount(self.labels).max()) / len(self.labels)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        chosen = torch.randint(len(self.labels), (count,), generator=generator).numpy()
        images = torch.from_numpy(np.stack([self.pixels[index] for index in chosen]))
        if self.shift:
            moves = torch.randint(-self.shift, self.shift + 1, (count, 2), generator=generator).tolist()
            images = torch.stack([_moved(image, *move) for image, move in zip(images, moves, strict=True)])
        return self.batch(images, chosen)

    def all_images(self, first: int = 0, count: int | None = None) -> Batch:
        """Return the images in dataset order, or `count` of them from `first` on."""
        indices = np.arange(len(self.labels))[first : None if count is None else first + count]
        return self.batch(torch.from_numpy(np.array(self.pixels[indices])), indices)

    def batch(self, images: Tensor, indices: NDArray[np.integer[Any]]) -> Batch:
        """Return a batch of these images, with the labels of these dataset indices."""
        labels = torch.from_numpy(np.asarray(self.labels[indices], np.int64))
        return Batch(scale_pixels(images), labels, {"class": labels})


def scale_pixels(pixels: Tensor) -> Float[Tensor, "..."]:
    """Scale uint8 pixels to [-1, 1], the input range of vision models."""
    return pixels.float() / 127.5 - 1


def _moved(image: Tensor, down: int, right: int) -> Tensor:
    """Translate an image, filling with black."""
    _, height, width = image.shape
    wide = torch.nn.functional.pad(image, (abs(right),) * 2 + (abs(down),) * 2)
    top, left = abs(down) - down, abs(right) - right
    return wide[:, top : top + height, left : left + width]
