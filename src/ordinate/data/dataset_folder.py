"""Build-once data folders with a manifest: complete, or absent."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.checks import need

MANIFEST = "manifest.json"


# folders replaced since `keep_previous_data` began; None: predecessors are not kept
_REPLACED: ContextVar[list[Path] | None] = ContextVar("_REPLACED", default=None)


@contextmanager
def keep_previous_data() -> Iterator[None]:
    """Restore every data folder that `build_once` replaces meanwhile, if an exception ends the block."""
    replaced: list[Path] = []
    token = _REPLACED.set(replaced)
    try:
        yield
    except BaseException:
        for folder in replaced:
            _restore(folder)
        raise
    finally:
        _REPLACED.reset(token)
    for folder in replaced:
        shutil.rmtree(beside(folder)[1], ignore_errors=True)


def beside(folder: Path) -> tuple[Path, Path]:
    """Return the folders beside a data folder in which its successor is built, and its predecessor is kept."""
    return folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.previous")


def _replace(folder: Path) -> None:
    new, previous = beside(folder)
    replaced = _REPLACED.get()
    if folder.exists():
        os.replace(folder, previous)
        if replaced is not None:
            replaced.append(folder)
    os.replace(new, folder)
    if replaced is None:
        shutil.rmtree(previous, ignore_errors=True)


def _restore(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(beside(folder)[1], folder)


def build_once(
    folder: Path, key: Mapping[str, Any], files: Sequence[str], name: str, make: Callable[[Path], dict[str, Any]]
) -> dict[str, Any]:
    """Return the manifest of a data folder, building the data unless it exists with the same key and hashes.

    New data are built beside the folder and replace it once they are complete.

    Args:
        folder: output folder.
        key: cache key; a different key rebuilds the data.
        files: names of the data files.
        name: name of the source, for messages.
        make: writes the files into a folder and returns their description.

    Raises:
        ValueError: the folder contains other files.
        OSError: the disk is full or not writable; partial output is removed.
    """
    new, previous = beside(folder)
    if previous.exists() and folder not in (_REPLACED.get() or ()):
        # a process was killed while it replaced the folder
        _restore(folder)
    manifest = complete_manifest(folder)
    if manifest and manifest["key"] == key and manifest.get("hashes") == _hashes(folder, files):
        return manifest
    _check_own(folder, files)
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        about = make(new)
        sizes = {file: (new / file).stat().st_size for file in files}
        manifest = {**about, "key": dict(key), "sizes": sizes, "hashes": _hashes(new, files)}
        write_checksummed(new / MANIFEST, manifest)
        _replace(folder)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(
                error.errno, f"the data of {name} do not fit on the disk; free space and try again", str(folder)
            ) from None
        raise
    return manifest


def complete_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder; None unless every file has its recorded size."""
    try:
        manifest = read_checksummed(folder / MANIFEST)
        complete = all((folder / name).stat().st_size == size for name, size in manifest["sizes"].items())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return manifest if complete else None


def is_intact(folder: Path) -> bool:
    """Whether a folder has its manifest, and every file the hash that the manifest records."""
    manifest = complete_manifest(folder)
    return manifest is not None and manifest.get("hashes") == _hashes(folder, list(manifest["sizes"]))


def need_complete_folder(folder: Path, what: str) -> dict[str, Any]:
    """Return the manifest of a folder.

    Raises:
        ValueError: no manifest, or a file does not have its recorded size.
    """
    manifest = complete_manifest(folder)
    if manifest is None:
        raise ValueError(f"{what} must be complete; {folder} contains none that are; prepare them again")
    return manifest


def data_identity(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the manifest that identifies the data."""
    return {name: value for name, value in manifest.items() if name not in ("key", "sizes", "hashes")}


def _hashes(folder: Path, files: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in files:
        with (folder / name).open("rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _check_own(folder: Path, files: Sequence[str]) -> None:
    """Raise a ValueError if this folder, which is about to be emptied, contains other files."""
    held = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    # temporary files of a killed run are named .NAME.*, with the NAME of one of these files
    own = (*files, MANIFEST)
    others = [name for name in held if name not in own and not name.startswith(tuple(f".{name}." for name in own))]
    came = f"{folder} contains {', '.join(others[:3])}"
    need(not others, "prepared data need a folder of their own", came, "give an empty or new folder")
