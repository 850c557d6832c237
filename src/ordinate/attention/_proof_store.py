"""Proofs of attention backends on disk: one small JSON file for each, in the user's cache folder."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ordinate.core.atomic_files import write_text
from ordinate.core.devices import is_rehearsed
from ordinate.ops.native.compiler import UnavailableError
from ordinate.ops.native.library_cache import is_private, open_cache

FOLDER = "proofs"
# packages whose code a proof depends on; that of `core` says who sees whom, and what agrees
SOURCES = ("attention", "core", "ops", "schemes")

Facts = Mapping[str, Any]
"""What a proof was made of: the environment and the form of the call, in JSON types."""


class ProofStore:
    """Proofs that earlier processes of this user have made on such a device, with these versions.

    A proof is a file named by a digest of its facts, which it repeats. Only proofs are stored: what disagreed, or did
    not compile, is tested anew by each process. Where the cache folder is open to other users, or cannot be written,
    nothing is stored and nothing is read.

    Args:
        folder: the folder; None: no proofs are stored.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    @classmethod
    def of_user(cls) -> "ProofStore":
        """Open the user's cache folder ($XDG_CACHE_HOME or ~/.cache, then ordinate/proofs)."""
        try:
            folder = open_cache() / FOLDER
            folder.mkdir(mode=0o700, exist_ok=True)
            return cls(folder if is_private(folder) else None)
        except (UnavailableError, OSError, RuntimeError):
            return cls(None)

    def has(self, facts: Facts) -> bool:
        """Whether there is a proof with these facts."""
        if self.folder is None:
            return False
        path = self._path(facts)
        # a damaged file is none; brackets without end exceed the recursion limit
        with suppress(OSError, ValueError, RecursionError):
            return is_private(path) and json.loads(path.read_text(encoding="utf-8")) == _plain(facts)
        return False

    def add(self, facts: Facts) -> None:
        """Store a proof; a folder that is full or read-only is no error."""
        if self.folder is None:
            return
        with suppress(OSError):
            path = self._path(facts)
            write_text(path, json.dumps(facts, indent=1))
            path.chmod(0o600)

    def _path(self, facts: Facts) -> Path:
        content = json.dumps(facts, sort_keys=True).encode()
        return (self.folder or Path()) / f"{hashlib.sha256(content).hexdigest()[:32]}.json"


def environment(device: torch.device) -> dict[str, Any] | None:
    """Return what a proof on a device depends on: its name, versions, the code; None where proofs are not stored."""
    if device.type != "cuda" or is_rehearsed():
        return None
    return {
        "device": torch.cuda.get_device_name(device),
        "capability": list(torch.cuda.get_device_capability(device)),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "cuda": torch.version.cuda,
        # of near_far's far keys; it can be another than the one that PyTorch came with
        "cudnn": torch.backends.cudnn.version(),
        "hip": torch.version.hip,
        "code": _code_digest(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def _code_digest() -> str:
    home = Path(__file__).parents[1]
    files = sorted(path for name in SOURCES for path in (home / name).rglob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _plain(facts: Facts) -> Any:
    return json.loads(json.dumps(facts))
