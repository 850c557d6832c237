"""Labelled images as memory-mapped pixel arrays, with a held-out split."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ordinate.core.checks import need
from ordinate.core.seeds import derive_seed
from ordinate.data.dataset_folder import build_once, data_identity, need_complete_folder
from ordinate.data.image_sources import ImageDataset, LabelledImage
from ordinate.data.token_store import SPLITS, Split

FORMAT = 2
FILES = tuple(f"{split}{part}.npy" for split in SPLITS for part in ("", "-labels"))


@dataclass(frozen=True)
class ImageStore:
    """A folder of labelled images of equal size.

    Args:
        folder: the folder.
        manifest: its manifest.
    """

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        """The part of the manifest that identifies the data."""
        return data_identity(self.manifest)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names."""
        return tuple(self.manifest["classes"])

    def pixels(self, split: Split) -> NDArray[np.uint8]:
        """Return the images of a split, memory-mapped: (images, channels, height, width)."""
        return npy.open_memmap(self.folder / f"{split}.npy", mode="r")

    def labels(self, split: Split) -> NDArray[np.int64]:
        """Return the class of each image."""
        return np.load(self.folder / f"{split}-labels.npy")


def prepare_images(dataset: ImageDataset, folder: Path, *, share: float = 0.2) -> ImageStore:
    """Build the image store of a folder, unless it exists already.

    The held-out split is chosen by a hash of each image's resized pixels, so that duplicate images, whatever their
    names, are all on the same side.

    Args:
        dataset: the source images.
        folder: output folder.
        share: held-out fraction.

    Raises:
        ValueError: a class without training or without held-out images; the folder contains other files.
        OSError: the disk is full or not writable; partial output is removed.
    """
    sizes = {"size": dataset.size, "channels": dataset.channels, "share": share}
    key = {"format": FORMAT, "name": dataset.name, "fingerprint": dataset.fingerprint(), **sizes}
    return ImageStore(
        folder, build_once(folder, key, FILES, dataset.name, lambda place: _make(dataset, place, share))
    )


def open_images(folder: Path) -> ImageStore:
    """Open the image store of a folder.

    Raises:
        ValueError: there is none, or a file does not have its recorded size.
    """
    return ImageStore(folder, need_complete_folder(folder, "images"))


def _make(dataset: ImageDataset, folder: Path, share: float) -> dict[str, Any]:
    digest, labels = hashlib.sha256(), {split: [] for split in SPLITS}
    paths = {split: folder / f".{split}.npy.raw" for split in SPLITS}
    streams = {split: path.open("wb") for split, path in paths.items()}
    try:
        for image in dataset.images():
            split = _side(image, share)
            digest.update(f"{image.name}\0{image.label}\0".encode() + image.pixels.tobytes())
            streams[split].write(image.pixels.tobytes())
            labels[split].append(image.label)
    finally:
        for stream in streams.values():
            stream.close()
    for split in SPLITS:
        lacking = [name for label, name in enumerate(dataset.classes) if label not in labels[split]]
        must = f"each class needs {'training' if split == 'train' else 'held-out'} images"
        need(not lacking, must, f"{', '.join(lacking[:3])} has none", "give more images")
    for split, path in paths.items():
        shape = len(labels[split]), dataset.channels, dataset.size, dataset.size
        np.save(folder / f"{split}.npy", np.memmap(path, np.uint8, "r", shape=shape))
        path.unlink()
        np.save(folder / f"{split}-labels.npy", np.array(labels[split], np.int64))
    return {
        "name": dataset.name,
        "sha256": digest.hexdigest(),
        "classes": list(dataset.classes),
        **dataset.left_out.record,
        "pixels": dataset.size,
        "channels": dataset.channels,
        "train_images": len(labels["train"]),
        "validation_images": len(labels["validation"]),
        "held_out": f"{share:.0%} of the images, by a hash of their pixels",
        "chance": round(max(np.bincount(labels["validation"]).tolist()) / len(labels["validation"]), 4),
    }


def _side(image: LabelledImage, share: float) -> Split:
    content = hashlib.sha256(image.pixels.tobytes()).hexdigest()
    return "validation" if derive_seed(content) / 2**63 < share else "train"
