"""Python's standard library as training text: its source files, and a fingerprint to detect changes."""

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

EXCLUDED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__"}
)


def source_files(root: Path) -> list[Path]:
    """Return all .py files below `root` except tests and installed packages, sorted by path."""
    found = (file for file in root.rglob("*.py") if not EXCLUDED_FOLDERS & set(file.relative_to(root).parts))
    return sorted(found, key=lambda file: file.as_posix())


def fingerprint(files: Iterable[Path]) -> str:
    """Return a hash of Python's version and each file's path, size and modification time."""
    digest = hashlib.sha256(sys.version.encode())
    for file in files:
        stat = file.stat()
        # names of files may be bytes that are no UTF-8
        digest.update(os.fsencode(file.resolve()) + f"\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def readable_name(path: Path) -> str:
    """Return a path as text that can be printed and stored, with bytes that are not UTF-8 escaped."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
