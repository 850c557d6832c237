"""What driver and worker of a study do when the ground gives way; workers are doubles, or this process."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from ordinate import files
from ordinate.files import read_sealed
from ordinate.study import process, worker
from ordinate.study.conduct import conduct
from ordinate.study.engines.local import Local
from ordinate.study.folder import Folder
from ordinate.study.pace import Pace
from ordinate.study.plan import Plan
from ordinate.study.settle import settle

SIZES = {"steps": 4, "batch": 4, "width": 16, "layers": 1, "heads": 2, "warmup": 1, "fresh": 20, "multiples": (1,)}


class Quiet:
    def reading(self, name):
        pass

    def planned(self, plan, todo):
        pass

    def news(self, news):
        pass


@pytest.fixture(scope="module")
def plan():
    return settle(Plan(task="copy:count=4", schemes=("rope", "none"), checkpoint_every=2, **SIZES))


@pytest.fixture
def folder(plan, tmp_path):
    """A study that is planned, with nothing done."""
    return conduct(plan.model_copy(), tmp_path / "study", Nobody(1), "ordinate study", Quiet())


class Nobody(Local):
    """Carries nothing out."""

    def pace(self, folder, plan, runs):
        return Pace(1)

    def carry_out(self, folder, plan, runs, watch):
        pass


@pytest.fixture
def work(folder, monkeypatch):
    """Carry out the first run in this process: its code."""
    name = folder.plan().runs()[0].name

    def go():
        monkeypatch.setattr(sys, "argv", ["worker", str(folder.path), name])
        return worker.main()

    return go


def result(folder):
    found = read_sealed(folder.result(folder.plan().runs()[0]))
    return {name: value for name, value in found.items() if name != "cost"}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_is_full_when_the_result_is_written_is_told_and_nothing_is_lost(
    folder, work, monkeypatch, capsys, call
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    write = worker.write_sealed

    def write_on_full_disk(path, value):
        if path.name == "result.json":
            monkeypatch.setattr(files.os, call, full)
        write(path, value)

    monkeypatch.setattr(worker, "write_sealed", write_on_full_disk)
    assert work() == 1
    assert "No space left on device" in capsys.readouterr().err
    run = folder.plan().runs()[0]
    assert folder.status(run) == "pending"
    assert not list(folder.run(run).glob(".result*"))
    monkeypatch.undo()
    assert work() == 0
    assert folder.status(run) == "done"


@pytest.mark.parametrize("how", ["truncated", "empty", "missing", "binary", "flipped"])
def test_a_result_that_is_damaged_is_made_again_the_same(folder, work, how):
    assert work() == 0
    run = folder.plan().runs()[0]
    before, path = result(folder), folder.result(run)
    raw = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        # the last digit of the first loss
        place = raw.index(b"\n", raw.index(b'"loss"') + 10) - 2
        flipped = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        assert chr(flipped[place]).isdigit()
        path.write_bytes({"truncated": raw[:-9], "empty": b"", "binary": b"\xff" + raw[1:], "flipped": flipped}[how])
    assert folder.status(run) == "pending"
    assert work() == 0
    assert result(folder) == before


@pytest.mark.parametrize(("how", "step"), [("flipped", 1), ("flipped", 3), ("truncated", 2), ("missing", 1)])
def test_a_loss_that_is_damaged_before_a_checkpoint_is_made_again_the_same(folder, work, capsys, how, step):
    assert work() == 0
    run = folder.plan().runs()[0]
    before, losses = result(folder), folder.run(run) / "checkpoints" / "metrics.jsonl"
    folder.result(run).unlink()
    lines = losses.read_bytes().split(b"\n")
    # a digit of a loss
    place = lines[step - 1].index(b".") + 1
    flipped = lines[step - 1][:place] + bytes([lines[step - 1][place] ^ 1]) + lines[step - 1][place + 1 :]
    if how == "missing":
        losses.unlink()
    else:
        rest = [flipped, *lines[step:]] if how == "flipped" else [lines[step - 1][:9]]
        losses.write_bytes(b"\n".join([*lines[: step - 1], *rest]))
    assert work() == 0
    assert result(folder) == before
    said = capsys.readouterr().err
    assert said.count(f"the loss of step {step} is not as it was written; ") == (2 if step < 3 else 1)


DOUBLE = """#!/bin/sh
# a worker that trains for ever, and takes its time to stop; nothing else begins
trap 'sleep 0.2; echo stopped > {place}/stopped-$4; exit 143' TERM
trap '' INT
[ $# = 4 ] || exit 1
echo '{{"step": 1, "loss": 2.0}}'
for i in $(seq 400); do sleep 0.05; done
"""


@pytest.fixture
def double(tmp_path, monkeypatch):
    """Workers that are shell scripts."""
    script = tmp_path / "double"
    script.write_text(DOUBLE.format(place=tmp_path))
    script.chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(script))
    return tmp_path


@pytest.fixture
def hears():
    """This process hears Ctrl-C, which a shell keeps from what it begins in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears")
@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)])
def test_interrupted_twice_every_worker_still_ends_and_nothing_is_written(plan, folder, double, numbers):
    heard, lock = set(), threading.Lock()

    class Interrupter(Quiet):
        def news(self, news):
            # each worker tells from a thread of its own
            with lock:
                new = news.step and news.run.name not in heard
                heard.update([news.run.name] if new else [])
            if new and len(heard) == 2:
                threading.Thread(target=interrupt).start()

    def interrupt():
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.05)

    with pytest.raises(KeyboardInterrupt):
        conduct(plan, folder.path, Local(2), "ordinate study", Interrupter())
    deadline = time.monotonic() + 10
    while len(list(double.glob("stopped-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(list(double.glob("stopped-*"))) == 2
    assert [folder.status(run) for run in plan.runs()] == ["pending", "pending"]
    with folder.lock():
        pass


KILLED = """
import os, signal, sys
from pathlib import Path
from ordinate.files import write_json
names, left = ("fsync", "replace", "chmod", "write"), int(sys.argv[2])
for name in names:
    def wrapped(*given, call=getattr(os, name), **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*given, **named)
    setattr(os, name, wrapped)
write_json(Path(sys.argv[1]), {"new": list(range(1000))})
"""


def test_killed_at_any_call_a_result_is_the_old_one_or_the_new_one(tmp_path):
    path, ends = tmp_path / "result.json", []
    for call in range(1, 8):
        files.write_json(path, {"old": 1})
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(call)], timeout=60)
        ends.append(done.returncode)
        assert json.loads(path.read_text()) in ({"old": 1}, {"new": list(range(1000))})
    assert ends.count(-signal.SIGKILL) >= 3
    assert ends[-1] == 0


def test_folders_that_are_no_planned_run_are_left_alone(plan, folder):
    other = folder.path / "runs" / "thesis"
    other.mkdir(parents=True)
    (other / "result.json").write_text("precious")
    assert [run.name for run in Folder(folder.path).missing(plan)] == [run.name for run in plan.runs()]
    assert (other / "result.json").read_text() == "precious"
