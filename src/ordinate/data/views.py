"""How a picture is shown to a model for images."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.checks import need
from ordinate.data.pictures import open_picture

PREPROCESSOR = "preprocessor_config.json"
# the names of the classes, beside a model that does not hold them itself
NAMES = "classes.json"
# how pillow numbers its filters
BICUBIC = 3


@dataclass(frozen=True)
class View:
    """How a picture becomes the numbers that a model was trained on.

    Args:
        size: height and width that the model sees [pixels].
        channels: 1 for grey, 3 for colours.
        shortest: the shorter side is brought to so many pixels and the middle cut out; None: the whole picture is
            brought to `size`, whatever its own [pixels].
        resample: how pillow draws what is between pixels, by its number.
        mean: taken off each channel, of numbers from 0 to 1.
        deviation: what each channel is divided by then.
    """

    size: tuple[int, int]
    channels: int = 3
    shortest: int | None = None
    resample: int = BICUBIC
    mean: tuple[float, ...] = (0.5,)
    deviation: tuple[float, ...] = (0.5,)

    @classmethod
    def of(cls, folder: Path, size: tuple[int, int], channels: int) -> "View":
        """The view of a model in a folder: as its preprocessor_config.json says, or as our own are trained.

        Raises:
            ValueError: a file that says it in other words.
        """
        path = folder / PREPROCESSOR
        if not path.is_file():
            return cls(size, channels)
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            asked, cut = _sides(said.get("size", size)), said.get("crop_size") if said.get("do_center_crop") else None
            seen = _sides(cut) if cut is not None else asked
            mean, deviation = (tuple(map(float, said.get(f"image_{part}", [0.5]))) for part in ("mean", "std"))
            kind = int(said.get("resample", BICUBIC))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{PREPROCESSOR} says size, crop_size, image_mean and image_std; {path} does not ({error}); "
                "remove it, and pictures are brought to the model's size"
            ) from None
        sound = all(len(numbers) in (1, channels) for numbers in (mean, deviation)) and min(deviation) > 0
        need(sound, "each channel has a mean and a deviation", f"got {mean} and {deviation}", f"mend {path}")
        if said.get("do_normalize") is False:
            mean, deviation = (0.0,), (1.0,)
        shortest = min(asked) if cut is not None else None
        return cls((seen[0], seen[-1]), channels, shortest, kind, mean, deviation)

    def read(self, file: Path) -> Float[Tensor, "channels y x"]:
        """A picture as numbers.

        Raises:
            ValueError: no picture.
        """
        image, (height, width) = open_picture(file, self.channels), self.size
        if self.shortest is None:
            image = image.resize((width, height), self.resample)
        else:
            # the picture is made large enough for what is cut out of it
            least = min(image.size)
            pairs = zip(image.size, (width, height), strict=True)
            sides = [max(int(side * self.shortest / least), cut) for side, cut in pairs]
            left, top = (sides[0] - width) // 2, (sides[1] - height) // 2
            image = image.resize((sides[0], sides[1]), self.resample).crop((left, top, left + width, top + height))
        pixels = np.asarray(image, np.float32) / 255
        pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        mean, deviation = (np.array(numbers, np.float32)[:, None, None] for numbers in (self.mean, self.deviation))
        return torch.from_numpy((pixels - mean) / deviation)


def class_names(folder: Path, labels: Sequence[str], count: int) -> list[str]:
    """The names of a model's classes: its own, or those in classes.json beside it, or numbers.

    Raises:
        ValueError: a file that does not name each class.
    """
    path = folder / NAMES
    if labels or not path.is_file():
        return list(labels or map(str, range(count)))
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        names = None
    sound = isinstance(names, list) and len(names) == count and all(isinstance(name, str) for name in names)
    need(
        sound,
        f"{NAMES} is a list of {count} names",
        f"{path} holds something else",
        "name each class, or remove it",
    )
    return [str(name) for name in names or []]


def _sides(said: Any) -> Sequence[int]:
    """Height and width, of any of the words of transformers; one number where it names the shorter side."""
    if isinstance(said, int):
        return said, said
    if isinstance(said, dict):
        return [said["shortest_edge"]] if "shortest_edge" in said else [said["height"], said["width"]]
    return [int(side) for side in said]
