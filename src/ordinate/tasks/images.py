"""Say the class of an image."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ordinate.batch import Batch
from ordinate.checks import need
from ordinate.task import Task


class Images(Task):
    """Images, each of one class, drawn with the same chance.

    Args:
        pixels: 0 to 255; (images, channels, height, width), in memory or on disk.
        labels: the class of each, counted from 0.
        classes: the names of the classes.
        shift: how far an image is moved at most, up, down, left and right, what comes in being black; in training it
            makes more of few images [pixels].
    Raises:
        ValueError: no images, others than bytes, or classes that are not named.
    """

    reader = "vision"

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
            "pixels are bytes of (images, channels, height, width)",
            f"got {pixels.dtype} of {pixels.shape}",
            "read them by read_picture",
        )
        need(
            labels.shape == (len(pixels),),
            "each image has a class",
            f"got {labels.shape} for {len(pixels)} images",
            "give one for each",
        )
        low, high = int(labels.min()), int(labels.max())
        named = low >= 0 and high < len(classes)
        need(named, f"classes lie in 0 to {len(classes) - 1}", f"got {low} to {high}", "name every class")
        need(shift >= 0, "shift must not be negative", f"got {shift}", "0 leaves images where they are")
        self.pixels, self.labels, self.classes, self.shift = pixels, labels, classes, shift

    @property
    def vocabulary(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @property
    def length(self) -> int:
        """Pixels of an image [pixels]."""
        return int(np.prod(self.pixels.shape[2:]))

    @property
    def chance(self) -> float:
        """How often the commonest class is right."""
        return int(np.bincount(self.labels).max()) / len(self.labels)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Any images, each as likely."""
        chosen = torch.randint(len(self.labels), (count,), generator=generator).numpy()
        images = torch.from_numpy(np.stack([self.pixels[place] for place in chosen]))
        if self.shift:
            moves = torch.randint(-self.shift, self.shift + 1, (count, 2), generator=generator).tolist()
            images = torch.stack([_moved(image, *move) for image, move in zip(images, moves, strict=True)])
        return self.batch(images, chosen)

    def every(self, first: int = 0, count: int | None = None) -> Batch:
        """The images in their order, or some of them."""
        places = np.arange(len(self.labels))[first : None if count is None else first + count]
        return self.batch(torch.from_numpy(np.array(self.pixels[places])), places)

    def batch(self, images: Tensor, places: NDArray[np.integer[Any]]) -> Batch:
        """These images with their classes."""
        labels = torch.from_numpy(np.asarray(self.labels[places], np.int64))
        return Batch(scaled(images), labels, {"class": labels})


def scaled(pixels: Tensor) -> Float[Tensor, "..."]:
    """Bytes as numbers from -1 to 1, which models for images read."""
    return pixels.float() / 127.5 - 1


def _moved(image: Tensor, down: int, right: int) -> Tensor:
    """An image moved, what comes in being black."""
    _, height, width = image.shape
    wide = torch.nn.functional.pad(image, (abs(right),) * 2 + (abs(down),) * 2)
    top, left = abs(down) - down, abs(right) - right
    return wide[:, top : top + height, left : left + width]
