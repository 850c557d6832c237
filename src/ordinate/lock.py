"""One writer in a folder, known by name."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

LOCK, OWNER = ".lock", ".owner.json"


class OccupiedError(ValueError):
    """Somebody else is at work in the folder; the message says who."""


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Be the only one who writes in a folder, and say who that is.

    The system lets go of the lock when its owner ends, however that happens. Where a file system has no locks (some
    network folders), a file stands for one; if the process that made it, on this machine, is gone, it is taken over.

    Raises:
        OccupiedError: somebody else is at work there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = _acquired(folder)
    try:
        owner = {"host": socket.gethostname(), "process": os.getpid(), "since": _now()}
        (folder / OWNER).write_text(json.dumps(owner), encoding="utf-8")
        yield
    finally:
        (folder / OWNER).unlink(missing_ok=True)
        lock.release()


def owner_of(folder: Path) -> str:
    """Who is at work in a folder, in words."""
    owner = _owner(folder)
    if not owner:
        return "another process"
    return f"process {owner.get('process')} on {owner.get('host')}, since {owner.get('since')},"


def occupied(folder: Path) -> bool:
    """Whether somebody is at work in a folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except NotImplementedError:
        return not _gone(folder)
    lock.release()
    return False


def _acquired(folder: Path) -> BaseFileLock:
    try:
        lock: BaseFileLock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except NotImplementedError:
        lock = _without_locks(folder)
    except Timeout:
        raise _refusal(folder) from None
    return lock


def _without_locks(folder: Path) -> BaseFileLock:
    if _gone(folder):
        (folder / LOCK).unlink(missing_ok=True)
    lock = SoftFileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise _refusal(folder) from None
    return lock


def _gone(folder: Path) -> bool:
    """Whether the owner was a process of this machine that is no more."""
    owner = _owner(folder)
    if owner.get("host") != socket.gethostname() or not isinstance(owner.get("process"), int):
        return False
    try:
        os.kill(owner["process"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _owner(folder: Path) -> dict[str, object]:
    found = None
    with suppress(OSError, ValueError):
        found = json.loads((folder / OWNER).read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def _refusal(folder: Path) -> OccupiedError:
    return OccupiedError(
        f"one process writes to a folder; {owner_of(folder)} is at work in {folder}; "
        "wait for it, or give another --out"
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
