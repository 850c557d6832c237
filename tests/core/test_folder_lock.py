import json
import os
import signal
import socket
import subprocess
import sys

import filelock
import pytest

from ordinate.core import folder_lock
from ordinate.core.folder_lock import FolderLockedError, describe_owner, exclusive_lock, is_locked

HOLD = """
import pathlib, sys, time
from ordinate.core.folder_lock import exclusive_lock
with exclusive_lock(pathlib.Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(600)
"""


def holder(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "in\n"
    return process


def test_the_owner_is_named_and_a_dead_one_is_replaced(tmp_path):
    process = holder(tmp_path)
    try:
        assert is_locked(tmp_path)
        said = rf"process {process.pid} on {socket.gethostname()}, since 20"
        with pytest.raises(FolderLockedError, match=said), exclusive_lock(tmp_path):
            pass
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert not is_locked(tmp_path)
    with exclusive_lock(tmp_path):
        assert str(os.getpid()) in describe_owner(tmp_path)
    assert describe_owner(tmp_path) == "another process"


def test_whether_a_read_only_folder_is_locked_is_told_by_its_owner(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    (tmp_path / ".lock").touch()
    monkeypatch.setattr(folder_lock, "FileLock", refuse)
    assert not is_locked(tmp_path)
    (tmp_path / ".owner.json").write_text(json.dumps({"host": "elsewhere", "process": 1}))
    assert is_locked(tmp_path)


def test_of_many_concurrent_processes_one_gets_the_lock(tmp_path):
    code = (
        "import pathlib, sys, time, ordinate.core.folder_lock as l\n"
        "try:\n    with l.exclusive_lock(pathlib.Path(sys.argv[1])): time.sleep(3)\n"
        "except l.FolderLockedError: sys.exit(3)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    codes = sorted(process.wait() for process in [subprocess.Popen(command) for _ in range(8)])
    assert codes == [0] + [3] * 7


@pytest.fixture
def no_locks(monkeypatch):
    """A file system without locks."""

    def acquire(self, *_, **__):
        raise NotImplementedError("FileSystem does not appear to support flock; use SoftFileLock instead")

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)


def test_without_file_locks_only_a_dead_owner_is_replaced(tmp_path, no_locks):
    with exclusive_lock(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(FolderLockedError, match=str(os.getpid())), exclusive_lock(tmp_path):
            pass
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    owner = {"host": socket.gethostname(), "process": dead.pid, "since": "2026"}
    (tmp_path / folder_lock.LOCK).write_text("")
    (tmp_path / folder_lock.OWNER).write_text(json.dumps(owner))
    assert not is_locked(tmp_path)
    with exclusive_lock(tmp_path):
        pass
    # whether a process of another machine is alive cannot be known
    (tmp_path / folder_lock.LOCK).write_text("")
    (tmp_path / folder_lock.OWNER).write_text(json.dumps(owner | {"host": "elsewhere"}))
    with pytest.raises(FolderLockedError, match="on elsewhere"), exclusive_lock(tmp_path):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 1}'])
def test_a_damaged_owner_file_is_ignored(tmp_path, text):
    (tmp_path / folder_lock.OWNER).write_text(text)
    with exclusive_lock(tmp_path):
        pass
