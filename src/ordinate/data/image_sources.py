"""Sources of labelled images: scikit-learn's digits, or a folder per class."""

import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ordinate.core.checks import need, shown
from ordinate.data.corpus import LeftOut
from ordinate.data.stdlib_files import fingerprint, readable_name

if TYPE_CHECKING:
    from PIL.Image import Image

DIGITS = "digits"
# largest height and width that images are resized to [pixels]
LARGEST_SIZE = 4096
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
INSTALL_HINT = "install it: pip install 'ordinate[images]'"


@dataclass(frozen=True, eq=False)
class LabelledImage:
    """A labelled image.

    Args:
        name: its name.
        label: class index.
        pixels: 0 to 255; (channels, height, width).
    """

    name: str
    label: int
    pixels: NDArray[np.uint8]


class ImageDataset(ABC):
    """A source of labelled images in a fixed order.

    Args:
        name: name in the report.
        classes: class names.
        size: height and width that images are resized to [pixels].
        channels: channels of a pixel.
    """

    def __init__(self, name: str, classes: Sequence[str], size: int, channels: int) -> None:
        must = f"the image size must be 1 to {LARGEST_SIZE} pixels"
        need(0 < size <= LARGEST_SIZE, must, f"got {shown(size)}", "give another --image-size")
        self.left_out = LeftOut()
        self.name, self.classes, self.size, self.channels = name, tuple(classes), size, channels

    @abstractmethod
    def images(self) -> Iterator[LabelledImage]:
        """Yield the images one by one."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a string that changes if the images may have changed."""


class Digits(ImageDataset):
    """The digits dataset of scikit-learn: 1797 handwritten digits of 8 by 8 pixels.

    Args:
        size: height and width that images are resized to [pixels].
    """

    def __init__(self, size: int) -> None:
        super().__init__(DIGITS, [str(digit) for digit in range(10)], size, 1)

    def images(self) -> Iterator[LabelledImage]:
        """Yield the images, rescaled from 0..16 to 0..255."""
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise ValueError(f"digits need scikit-learn; it is not installed; {INSTALL_HINT}") from None
        images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
        for index, (image, label) in enumerate(zip(images.reshape(-1, 8, 8), labels.tolist(), strict=True)):
            grey = (image * (255 / 16)).round().astype(np.uint8)
            yield LabelledImage(f"{DIGITS}/{index}", label, resize_nearest(grey[None], self.size))

    def fingerprint(self) -> str:
        """Return the version of scikit-learn."""
        try:
            return importlib.metadata.version("scikit-learn")
        except importlib.metadata.PackageNotFoundError:
            raise ValueError(f"digits need scikit-learn; it is not installed; {INSTALL_HINT}") from None


class ImageFolder(ImageDataset):
    """A folder of image files with one sub-folder per class, named after the class.

    Args:
        path: the folder.
        size: height and width that images are resized to, ignoring their aspect ratio [pixels].
    Raises:
        ValueError: fewer than two sub-folders with images.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path, left = path, LeftOut()
        self.files: dict[str, list[Path]] = {}
        for place in sorted(path.iterdir()):
            name = readable_name(place.relative_to(path))
            if not place.is_dir():
                left.add("outside the folders of classes", name)
            elif place.name.startswith("."):
                left.add("hidden", name)
            elif files := _files(place, left, path):
                self.files[name] = files
        need(
            len(self.files) > 1,
            "images must be in one sub-folder per class, at least two",
            f"{readable_name(path)} has {len(self.files)} with images ({', '.join(SUFFIXES)})"
            f"{left.describe('; left out: {}').replace(';', ',', 1)}",
            "give the parent folder of the class folders",
        )
        super().__init__(readable_name(path), list(self.files), size, 3)
        self.left_out = left

    def images(self) -> Iterator[LabelledImage]:
        """Yield the images in RGB, classes in alphabetical order.

        Raises:
            ValueError: a file is not an image.
        """
        for label, files in enumerate(self.files.values()):
            for file in files:
                name = readable_name(file.relative_to(self.path))
                yield LabelledImage(name, label, read_image(file, self.size, 3))

    def fingerprint(self) -> str:
        """Return a hash of the names, sizes and modification times of all files."""
        return fingerprint(file for files in self.files.values() for file in files)


def resolve_images(text: str, size: int) -> ImageDataset:
    """Resolve an image source: `digits`, or a folder with one sub-folder per class.

    Raises:
        ValueError: neither, or no images there.
    """
    if text == DIGITS:
        return Digits(size)
    path = Path(text)
    need(path.is_dir(), "images must be digits or the path of a folder", f"{text!r} is neither", "check the path")
    return ImageFolder(path, size)


def read_image(file: Path, size: int, channels: int) -> NDArray[np.uint8]:
    """Read an image file, resized to a square.

    Args:
        file: the file.
        size: height and width [pixels].
        channels: 1 for greyscale, 3 for RGB.

    Raises:
        ValueError: not an image, or pillow is not installed.
    """
    pixels = np.asarray(open_image(file, channels).resize((size, size)), np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def open_image(file: Path, channels: int) -> "Image":
    """Open an image file in its original size, EXIF-rotated, in greyscale or RGB.

    Raises:
        ValueError: not an image, or pillow is not installed.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise ValueError(f"reading images needs pillow; it is not installed; {INSTALL_HINT}") from None
    need(channels in (1, 3), "images must be greyscale or RGB", f"got {channels} channels", "give 1 or 3")
    try:
        with Image.open(file) as image:
            return ImageOps.exif_transpose(image).convert("L" if channels == 1 else "RGB")
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ValueError(
            f"an image must be readable; {readable_name(file)} is not ({why}); repair or remove it"
        ) from None


def resize_nearest(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Resize a square image by nearest neighbour; exact if the new size is a multiple."""
    old = pixels.shape[-1]
    index = (np.arange(size) * old) // size
    return pixels[:, index[:, None], index]


def _files(folder: Path, left: LeftOut, root: Path) -> list[Path]:
    """Return the image files of a class, and note all other files."""
    found = []
    for file in sorted(path for path in folder.rglob("*") if not path.is_dir()):
        reason = "no regular file" if not file.is_file() else ""
        reason = reason or ("hidden" if file.name.startswith(".") else "")
        reason = reason or ("no image by its name" if file.suffix.lower() not in SUFFIXES else "")
        if reason:
            left.add(reason, readable_name(file.relative_to(root)))
        else:
            found.append(file)
    return found
