"""Source files on this machine, and whether they may have changed."""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__"})


def source_files(root: Path) -> list[Path]:
    """Every source file of the standard library but its tests, in the order of their names."""
    found = (file for file in root.rglob("*.py") if not LEFT_OUT & set(file.relative_to(root).parts))
    return sorted(found, key=lambda file: file.as_posix())


def fingerprint(files: Iterable[Path]) -> str:
    """A string that changes when Python's version or a file's name, size or time does."""
    digest = hashlib.sha256(sys.version.encode())
    for file in files:
        stat = file.stat()
        digest.update(f"{file.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
