"""Folder lock: at most one process writes to a folder, and the lock records which."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

LOCK, OWNER = ".lock", ".owner.json"


class FolderLockedError(ValueError):
    """Another process holds the lock of the folder; the message names it."""


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Hold the exclusive lock of a folder, and record host, process id and start time in it.

    The operating system releases the lock when its process ends, however that happens. On file systems without locks
    (some network mounts) a lock file is used instead; one left by a dead process of this machine is taken over.

    Raises:
        FolderLockedError: another process holds the lock.
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


def describe_owner(folder: Path) -> str:
    """Describe the process that holds the lock of a folder, for messages."""
    owner = _owner(folder)
    if not owner:
        return "another process"
    return f"process {owner.get('process')} on {owner.get('host')}, since {owner.get('since')},"


def is_locked(folder: Path) -> bool:
    """True if another process holds the lock of the folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except NotImplementedError:
        return not _gone(folder)
    except OSError:
        # a folder of somebody else, or a read-only one, whose lock cannot be tried
        return bool(_owner(folder)) and not _gone(folder)
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
    """True if the recorded owner was a process of this machine that no longer runs."""
    owner = _owner(folder)
    if owner.get("host") != socket.gethostname() or not isinstance(owner.get("process"), int):
        return False
    try:
        # signal 0 only checks that the process exists
        os.kill(owner["process"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _owner(folder: Path) -> dict[str, object]:
    found = None
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads((folder / OWNER).read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def _refusal(folder: Path) -> FolderLockedError:
    return FolderLockedError(
        f"only one process may write to a folder; {describe_owner(folder)} is writing to {folder}; "
        "wait for it, or give another --out"
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
