"""Image preprocessing for vision models: resize, crop, normalise."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need
from ordinate.data.image_sources import open_image

PREPROCESSOR = "preprocessor_config.json"
# class names of a model whose config.json has none
CLASS_NAMES_FILE = "classes.json"
# pillow's number of the bicubic filter
BICUBIC = 3


@dataclass(frozen=True)
class ImagePreprocessor:
    """Preprocessing of an image file into model inputs.

    Args:
        size: height and width of the model input [pixels].
        channels: 1 for greyscale, 3 for RGB.
        shortest_edge: resize the shorter side to this length, then centre-crop; None: resize to `size`, ignoring the
            aspect ratio [pixels].
        resample: resampling filter, by pillow's number.
        mean: per-channel mean to subtract, on a scale of 0 to 1.
        std: per-channel standard deviation to divide by.
    """

    size: tuple[int, int]
    channels: int = 3
    shortest_edge: int | None = None
    resample: int = BICUBIC
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    @classmethod
    def from_folder(cls, folder: Path, size: tuple[int, int], channels: int) -> "ImagePreprocessor":
        """Read preprocessor_config.json of a model folder; without one, use the defaults of Ordinate's models.

        Raises:
            ValueError: the file cannot be interpreted.
        """
        path = folder / PREPROCESSOR
        if not path.is_file():
            return cls(size, channels)
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
            resized = _sides(config.get("size", size))
            crop = config.get("crop_size") if config.get("do_center_crop") else None
            cropped = _sides(crop) if crop is not None else resized
            mean, std = (tuple(map(float, config.get(f"image_{part}", [0.5]))) for part in ("mean", "std"))
            resample = int(config.get("resample", BICUBIC))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{PREPROCESSOR} must have a valid size, crop_size, image_mean and image_std; {path} does not "
                f"({error}); correct it, or remove it to resize images to the model's input size"
            ) from None
        sound = all(len(numbers) in (1, channels) for numbers in (mean, std)) and min(std) > 0
        need(sound, "each channel needs a mean and a positive std", f"got {mean} and {std}", f"correct {path}")
        if config.get("do_normalize") is False:
            mean, std = (0.0,), (1.0,)
        shortest_edge = min(resized) if crop is not None else None
        return cls((cropped[0], cropped[-1]), channels, shortest_edge, resample, mean, std)

    def read(self, file: Path) -> Float[Tensor, "channels y x"]:
        """Read and preprocess an image file.

        Raises:
            ValueError: not an image.
        """
        image, (height, width) = open_image(file, self.channels), self.size
        if self.shortest_edge is None:
            image = image.resize((width, height), self.resample)
        else:
            # resize to at least the crop size
            shorter = min(image.size)
            pairs = zip(image.size, (width, height), strict=True)
            sides = [max(int(side * self.shortest_edge / shorter), crop) for side, crop in pairs]
            left, top = (sides[0] - width) // 2, (sides[1] - height) // 2
            image = image.resize((sides[0], sides[1]), self.resample).crop((left, top, left + width, top + height))
        pixels = np.asarray(image, np.float32) / 255
        pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        mean, std = (np.array(numbers, np.float32)[:, None, None] for numbers in (self.mean, self.std))
        return torch.from_numpy((pixels - mean) / std)


def class_names(folder: Path, labels: Sequence[str], count: int) -> list[str]:
    """Return a model's class names: its own, or those of classes.json in its folder, or numbers.

    Raises:
        ValueError: classes.json does not name each class.
    """
    path = folder / CLASS_NAMES_FILE
    if labels or not path.is_file():
        return list(labels or map(str, range(count)))
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        names = None
    sound = isinstance(names, list) and len(names) == count and all(isinstance(name, str) for name in names)
    need(
        sound,
        f"{CLASS_NAMES_FILE} must be a list of {count} names",
        f"{path} is not",
        "name each class, or remove it",
    )
    return [str(name) for name in names or []]


def _sides(size: Any) -> Sequence[int]:
    """Return height and width from any size format of transformers; a single number for `shortest_edge`."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, dict):
        size = [size["shortest_edge"]] if "shortest_edge" in size else [size["height"], size["width"]]
    return [int(side) for side in size]
