"""Pictures by class: those that a person means, read in place."""

import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ordinate.checks import need
from ordinate.sources import fingerprint

if TYPE_CHECKING:
    from PIL.Image import Image

DIGITS = "digits"
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
MISSING = "install it: pip install 'ordinate[images]'"


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture.

    Args:
        name: what it is called.
        label: the place of its class.
        pixels: 0 to 255; (channels, height, width).
    """

    name: str
    label: int
    pixels: NDArray[np.uint8]


class Pictures(ABC):
    """Pictures by class, in the same order each time.

    Args:
        name: what the report calls them.
        classes: the names of the classes.
        size: height and width that they are brought to [pixels].
        channels: numbers of a pixel.
    """

    def __init__(self, name: str, classes: Sequence[str], size: int, channels: int) -> None:
        self.name, self.classes, self.size, self.channels = name, tuple(classes), size, channels

    @abstractmethod
    def pictures(self) -> Iterator[Picture]:
        """Every picture, one after another."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A string that changes when they may have changed."""


class Digits(Pictures):
    """1797 digits written by hand, of 8 by 8 pixels, that scikit-learn brings.

    Args:
        size: height and width that they are brought to [pixels].
    """

    def __init__(self, size: int) -> None:
        super().__init__(DIGITS, [str(digit) for digit in range(10)], size, 1)

    def pictures(self) -> Iterator[Picture]:
        """Each, from 16 levels of grey to 255."""
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise ValueError(f"digits are brought by scikit-learn; it is not here; {MISSING}") from None
        images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
        for place, (image, label) in enumerate(zip(images.reshape(-1, 8, 8), labels.tolist(), strict=True)):
            grey = (image * (255 / 16)).round().astype(np.uint8)
            yield Picture(f"{DIGITS}/{place}", label, brought(grey[None], self.size))

    def fingerprint(self) -> str:
        """The version of scikit-learn."""
        try:
            return importlib.metadata.version("scikit-learn")
        except importlib.metadata.PackageNotFoundError:
            raise ValueError(f"digits are brought by scikit-learn; it is not here; {MISSING}") from None


class PictureFolder(Pictures):
    """Your own pictures: a folder for each class, with the class's name.

    Args:
        path: the folder that holds them.
        size: height and width that pictures are brought to, whatever their own [pixels].
    Raises:
        ValueError: fewer than two folders with pictures.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        found = {folder.name: _files(folder) for folder in sorted(path.iterdir()) if folder.is_dir()}
        self.files = {name: files for name, files in found.items() if files and not name.startswith(".")}
        need(
            len(self.files) > 1,
            "pictures lie in a folder for each class, two at least",
            f"{path} has {len(self.files)} with pictures ({', '.join(ENDINGS)})",
            "give the folder that holds those of the classes",
        )
        super().__init__(str(path), list(self.files), size, 3)

    def pictures(self) -> Iterator[Picture]:
        """Each in colours, classes in the order of their names.

        Raises:
            ValueError: a file that is no picture.
        """
        for label, files in enumerate(self.files.values()):
            for file in files:
                yield Picture(file.relative_to(self.path).as_posix(), label, read_picture(file, self.size, 3))

    def fingerprint(self) -> str:
        """Names, sizes and times of all files."""
        return fingerprint(file for files in self.files.values() for file in files)


def find_pictures(text: str, size: int) -> Pictures:
    """The pictures that a person means: `digits`, or a folder with a folder for each class.

    Raises:
        ValueError: neither, or nothing to read there.
    """
    if text == DIGITS:
        return Digits(size)
    path = Path(text)
    need(path.is_dir(), "pictures are digits, or the path of a folder", f"{text!r} is neither", "check the path")
    return PictureFolder(path, size)


def read_picture(file: Path, size: int, channels: int) -> NDArray[np.uint8]:
    """The pixels of a picture, brought to a size.

    Args:
        file: where it is.
        size: height and width [pixels].
        channels: 1 for grey, 3 for colours.

    Raises:
        ValueError: no picture, or the package that reads pictures is missing.
    """
    pixels = np.asarray(open_picture(file, channels).resize((size, size)), np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def open_picture(file: Path, channels: int) -> "Image":
    """A picture in its own size, upright, grey or in colours.

    Raises:
        ValueError: no picture, or the package that reads pictures is missing.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise ValueError(f"pictures are read by pillow; it is not here; {MISSING}") from None
    need(channels in (1, 3), "pictures are grey or in colours", f"got {channels} channels", "give 1 or 3")
    try:
        with Image.open(file) as image:
            return ImageOps.exif_transpose(image).convert("L" if channels == 1 else "RGB")
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ValueError(f"a picture must be readable; {file} is not ({error}); mend or remove it") from None


def brought(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """A square picture in another size, each pixel repeated: exact where the size is a multiple."""
    old = pixels.shape[-1]
    place = (np.arange(size) * old) // size
    return pixels[:, place[:, None], place]


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
