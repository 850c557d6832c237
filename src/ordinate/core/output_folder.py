"""Checks of places on disk before anything is computed: output folders and files, and folders that do not exist."""

import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from ordinate.core.checks import need


def check_output_folder(folder: Path, endings: Sequence[str], option: str = "--out") -> None:
    """Raise unless files can be written to a folder, which may not exist yet.

    Args:
        folder: the folder.
        endings: endings of the files: .html, .csv.
        option: the option that names it.

    Raises:
        ValueError: it, or one above it, is a file; it cannot be written to; or a folder has the name of a file.
    """
    above = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    came = f"got {folder}, and {above} is a file"
    need(above.is_dir(), "output is written to a folder", came, f"give another folder by {option}")
    allowed = os.access(above, os.W_OK | os.X_OK)
    need(allowed, "the output folder must be writable", f"{above} is not", f"give another folder by {option}")
    held = sorted(folder.iterdir()) if folder.is_dir() else []
    taken = next((place for place in held if place.suffix in endings and place.is_dir()), None)
    need(
        taken is None, "files of the output are files", f"{taken} is a folder", f"remove it, or give another {option}"
    )


def check_output_file(file: Path, option: str) -> None:
    """Raise unless a file can be written, in a folder which may not exist yet.

    Args:
        file: the file.
        option: the option that names it.

    Raises:
        ValueError: it is a folder, a device or a pipe; or its folder is a file or cannot be written to.
    """
    kind = "a folder" if file.is_dir() else "no regular file"
    fits = file.is_file() or not file.exists()
    need(fits, f"{option} must be a file", f"{file} is {kind}", "give another file")
    check_output_folder(file.parent, (), option)


def nearest_folder(folder: Path, otherwise: str) -> str:
    """Return the remedy for a folder that does not exist: the nearest name beside it, or another remedy.

    Args:
        folder: the folder.
        otherwise: the remedy if there is none.
    """
    try:
        beside = [place.name for place in folder.absolute().parent.iterdir() if place.is_dir()]
    except OSError:
        beside = []
    near = get_close_matches(folder.name, beside, n=1, cutoff=0.6)
    return f"did you mean {folder.with_name(near[0])}?" if near and not folder.exists() else otherwise
