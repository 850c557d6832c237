"""Images by class as files of pixels: some to learn from, some held out."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ordinate.checks import need
from ordinate.data.folder import identity, made, need_whole_folder
from ordinate.data.pictures import Picture, Pictures
from ordinate.data.store import SPLITS, Split
from ordinate.seeds import seed_of

FORMAT = 2
FILES = tuple(f"{split}{part}.npy" for split in SPLITS for part in ("", "-labels"))


@dataclass(frozen=True)
class ImageStore:
    """A folder with images of one size.

    Args:
        folder: where it lies.
        manifest: what it holds.
    """

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the results of those who learn from it."""
        return identity(self.manifest)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(self.manifest["classes"])

    def pixels(self, split: Split) -> NDArray[np.uint8]:
        """The images of one side, read from disk as they are asked for: (images, channels, height, width)."""
        return npy.open_memmap(self.folder / f"{split}.npy", mode="r")

    def labels(self, split: Split) -> NDArray[np.int64]:
        """The class of each."""
        return np.load(self.folder / f"{split}-labels.npy")


def prepare_images(pictures: Pictures, folder: Path, *, share: float = 0.2) -> ImageStore:
    """Images in this folder, brought to one size, made unless they are there already.

    Held out is by a hash of each image's pixels, at this size, so that of equal images, whatever their names, none is
    learned from while another is held out.

    Args:
        pictures: what they are made of.
        folder: where the files go.
        share: how much to hold out.

    Raises:
        ValueError: a class with nothing to learn from, or nothing held out; a folder with other files.
        OSError: the disk is full or cannot be written; nothing half made is left.
    """
    sizes = {"size": pictures.size, "channels": pictures.channels, "share": share}
    key = {"format": FORMAT, "name": pictures.name, "fingerprint": pictures.fingerprint(), **sizes}
    return ImageStore(folder, made(folder, key, FILES, pictures.name, lambda: _make(pictures, folder, share)))


def open_images(folder: Path) -> ImageStore:
    """The images in a folder.

    Raises:
        ValueError: there are none, or a file of them is not as long as it should be.
    """
    return ImageStore(folder, need_whole_folder(folder, "images"))


def _make(pictures: Pictures, folder: Path, share: float) -> dict[str, Any]:
    digest, labels = hashlib.sha256(), {split: [] for split in SPLITS}
    paths = {split: folder / f".{split}.npy.raw" for split in SPLITS}
    streams = {split: path.open("wb") for split, path in paths.items()}
    try:
        for picture in pictures.pictures():
            split = _side(picture, share)
            digest.update(f"{picture.name}\0{picture.label}\0".encode() + picture.pixels.tobytes())
            streams[split].write(picture.pixels.tobytes())
            labels[split].append(picture.label)
    finally:
        for stream in streams.values():
            stream.close()
    for split in SPLITS:
        lacking = [name for label, name in enumerate(pictures.classes) if label not in labels[split]]
        what = "to learn from" if split == "train" else "held out"
        need(not lacking, f"each class needs images {what}", f"{', '.join(lacking[:3])} has none", "give more images")
    for split, path in paths.items():
        shape = len(labels[split]), pictures.channels, pictures.size, pictures.size
        np.save(folder / f"{split}.npy", np.memmap(path, np.uint8, "r", shape=shape))
        path.unlink()
        np.save(folder / f"{split}-labels.npy", np.array(labels[split], np.int64))
    return {
        "name": pictures.name,
        "sha256": digest.hexdigest(),
        "classes": list(pictures.classes),
        "pixels": pictures.size,
        "channels": pictures.channels,
        "train_images": len(labels["train"]),
        "validation_images": len(labels["validation"]),
        "held_out": f"{share:.0%} of the images, by a hash of their pixels",
        "chance": round(max(np.bincount(labels["validation"]).tolist()) / len(labels["validation"]), 4),
    }


def _side(picture: Picture, share: float) -> Split:
    content = hashlib.sha256(picture.pixels.tobytes()).hexdigest()
    return "validation" if seed_of(content) / 2**63 < share else "train"
