"""A folder of data that is made once: whole, or not at all."""

import errno
import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ordinate.checks import need
from ordinate.files import read_sealed, write_sealed

MANIFEST = "manifest.json"


def made(
    folder: Path, key: Mapping[str, Any], files: Sequence[str], name: str, make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What a folder holds, made unless it is there already, to the bit as it was made.

    Args:
        folder: where the files go.
        key: what decides them; another one makes them anew.
        files: their names.
        name: what they are made of, for messages.
        make: writes them, and says what they hold.

    Raises:
        ValueError: the folder holds other files.
        OSError: the disk is full or cannot be written; nothing half made is left.
    """
    manifest = whole(folder)
    if manifest and manifest["key"] == key and manifest.get("hashes") == _hashes(folder, files):
        return manifest
    _check_own(folder, files)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        about = make()
        sizes = {file: (folder / file).stat().st_size for file in files}
        manifest = {**about, "key": dict(key), "sizes": sizes, "hashes": _hashes(folder, files)}
        write_sealed(folder / MANIFEST, manifest)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(
                error.errno, f"the data of {name} do not fit on the disk; free space and try again", str(folder)
            ) from None
        raise
    return manifest


def whole(folder: Path) -> dict[str, Any] | None:
    """What a folder holds; None unless each of its files is as long as it was made."""
    try:
        manifest = read_sealed(folder / MANIFEST)
        complete = all((folder / name).stat().st_size == size for name, size in manifest["sizes"].items())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return manifest if complete else None


def need_whole_folder(folder: Path, what: str) -> dict[str, Any]:
    """What a folder holds.

    Raises:
        ValueError: nothing, or a file of it is not as long as it should be.
    """
    manifest = whole(folder)
    if manifest is None:
        raise ValueError(f"{what} must be whole; {folder} holds none that are; prepare them again")
    return manifest


def identity(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the results of those who learn from it."""
    return {name: value for name, value in manifest.items() if name not in ("key", "sizes", "hashes")}


def _hashes(folder: Path, files: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in files:
        with (folder / name).open("rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _check_own(folder: Path, files: Sequence[str]) -> None:
    """Raise a ValueError if this folder, which is about to be emptied, holds other files."""
    held = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    # temporary files of a run that was killed begin with a dot and the name of one of ours
    own = (*files, MANIFEST)
    others = [name for name in held if name not in own and not name.startswith(tuple(f".{name}." for name in own))]
    came = f"{folder} holds {', '.join(others[:3])}"
    need(not others, "prepared data need a folder of their own", came, "give an empty or a new one")
