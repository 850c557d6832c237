import json
import os
import signal
import socket
import subprocess
import sys

import filelock
import pytest

from ordinate import lock
from ordinate.lock import OccupiedError, occupied, only_writer, owner_of

HOLD = """
import pathlib, sys, time
from ordinate.lock import only_writer
with only_writer(pathlib.Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(600)
"""


def holder(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "in\n"
    return process


def test_the_owner_is_named_and_one_that_died_is_followed(tmp_path):
    process = holder(tmp_path)
    try:
        assert occupied(tmp_path)
        said = rf"process {process.pid} on {socket.gethostname()}, since 20"
        with pytest.raises(OccupiedError, match=said), only_writer(tmp_path):
            pass
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert not occupied(tmp_path)
    with only_writer(tmp_path):
        assert str(os.getpid()) in owner_of(tmp_path)
    assert owner_of(tmp_path) == "another process"


def test_of_many_who_begin_together_one_writes(tmp_path):
    code = (
        "import pathlib, sys, time, ordinate.lock as l\n"
        "try:\n    with l.only_writer(pathlib.Path(sys.argv[1])): time.sleep(3)\n"
        "except l.OccupiedError: sys.exit(3)"
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


def test_where_there_are_no_locks_a_dead_owner_is_followed_and_a_living_one_is_not(tmp_path, no_locks):
    with only_writer(tmp_path):
        assert occupied(tmp_path)
        with pytest.raises(OccupiedError, match=str(os.getpid())), only_writer(tmp_path):
            pass
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    owner = {"host": socket.gethostname(), "process": dead.pid, "since": "2026"}
    (tmp_path / lock.LOCK).write_text("")
    (tmp_path / lock.OWNER).write_text(json.dumps(owner))
    assert not occupied(tmp_path)
    with only_writer(tmp_path):
        pass
    # of another machine nothing is known
    (tmp_path / lock.LOCK).write_text("")
    (tmp_path / lock.OWNER).write_text(json.dumps(owner | {"host": "elsewhere"}))
    with pytest.raises(OccupiedError, match="on elsewhere"), only_writer(tmp_path):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 1}'])
def test_a_damaged_note_of_the_owner_harms_nobody(tmp_path, text):
    (tmp_path / lock.OWNER).write_text(text)
    with only_writer(tmp_path):
        pass
