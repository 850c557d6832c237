"""The cache of compiled kernels: shared libraries in the user's cache folder, named by what they depend on."""

import hashlib
import os
import stat
import tempfile
from pathlib import Path

import torch

from ordinate.ops.native.compiler import SOURCES, Compiler, UnavailableError, describe_processor


def open_cache() -> Path:
    """Return the cache folder, without symbolic links; it is created if need be, for this user only.

    Raises:
        UnavailableError: another user could put a library there.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ordinate"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = folder.resolve()
    reason = unsafe_folder_reason(folder)
    if reason is not None:
        raise UnavailableError(reason)
    return folder


def unsafe_folder_reason(folder: Path) -> str | None:
    """Return why libraries in a folder must not be loaded: another user could put one there; None: nobody could."""
    unsafe = next((path for path in folder.parents if _is_open(path.stat().st_mode)), None)
    if unsafe is None and is_private(folder):
        return None
    found = (unsafe or folder).stat()
    came = f"{unsafe or folder} has mode {stat.S_IMODE(found.st_mode):o} and owner {found.st_uid}"
    remedy = f"chmod go-w {unsafe or folder}, or set XDG_CACHE_HOME to a folder of your own"
    return f"only you may write to the cache folder of C++ kernels; {came}; {remedy}"


def find_library(folder: Path, name: str, compiler: Compiler) -> Path | None:
    """Return the library of a kernel for this version, PyTorch, compiler and processor, if it is there and whole."""
    for path in folder.glob(f"{name}-{_key(name, compiler)}-*.so"):
        # the file name contains a digest of the library: a truncated or changed file is never loaded; another user
        # may have written one while the folder was open to all
        if is_private(path) and path.stem.rpartition("-")[2] == _digest(path.read_bytes()):
            return path
    return None


def compile_library(folder: Path, name: str, compiler: Compiler) -> Path:
    """Compile a kernel into the cache folder and return the library.

    Raises:
        subprocess.SubprocessError: the compiler failed.
    """
    key = _key(name, compiler)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as room:
        made = Path(room) / f"{name}.so"
        compiler.compile(name, made)
        made.chmod(0o700)
        final = folder / f"{name}-{key}-{_digest(made.read_bytes())}.so"
        # an atomic rename: other processes may compile or load the same library at the same time
        os.replace(made, final)
    return final


def _is_open(mode: int) -> bool:
    """Whether anybody can replace the entries of a folder; the sticky bit, as of /tmp, leaves it to their owners."""
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def is_private(path: Path) -> bool:
    """Whether a file or folder belongs to this user or root, and nobody else may write to it."""
    found = path.stat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _key(name: str, compiler: Compiler) -> str:
    """Digest of everything that the machine code depends on."""
    parts = [path.read_bytes() for path in (SOURCES / f"{name}.cpp", *sorted(SOURCES.glob("*.h")))]
    parts += [text.encode() for text in (torch.__version__, *compiler.arguments, describe_processor())]
    return _digest(b"\0".join(parts))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
