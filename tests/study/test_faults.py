"""Faults: full disks, corrupted files, kills. Workers are test doubles, or this process."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from ordinate.core import atomic_files
from ordinate.core.atomic_files import read_checksummed
from ordinate.core.progress import ignore
from ordinate.study import worker
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.runner import run_study
from ordinate.study.study_folder import StudyFolder
from ordinate.study.thread_autotuning import ThreadChoice

SIZES = {
    "steps": 4,
    "batch": 4,
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warmup_steps": 1,
    "task_samples": 20,
    "eval_length_multiples": (1,),
}


@pytest.fixture(scope="module")
def plan():
    return resolve(Plan(task="copy:count=4", schemes=("rope", "none"), checkpoint_every=2, **SIZES))


@pytest.fixture
def folder(plan, tmp_path):
    """A planned study without results."""
    return run_study(plan.model_copy(), tmp_path / "study", Nobody(1), "ordinate study", ignore)


class Nobody(LocalExecutor):
    """Executor that does nothing."""

    def choose_threads(self, folder, plan, runs, on_progress):
        return ThreadChoice(1)

    def run_all(self, folder, plan, runs, on_progress):
        pass


@pytest.fixture
def work(folder, monkeypatch):
    """Carry out the first run in this process; returns its exit code."""
    name = folder.plan().runs()[0].name

    def go():
        monkeypatch.setattr(sys, "argv", ["worker", str(folder.path), name])
        return worker.main()

    return go


def result(folder):
    found = read_checksummed(folder.result(folder.plan().runs()[0]))
    return {name: value for name, value in found.items() if name != "cost"}


@pytest.mark.extended
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_when_the_result_is_written_is_reported_and_nothing_is_lost(
    folder, work, monkeypatch, capsys, call
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    write = worker.write_checksummed

    def write_on_full_disk(path, value):
        if path.name == "result.json":
            monkeypatch.setattr(atomic_files.os, call, full)
        write(path, value)

    monkeypatch.setattr(worker, "write_checksummed", write_on_full_disk)
    assert work() == 1
    assert "No space left on device" in capsys.readouterr().err
    run = folder.plan().runs()[0]
    assert folder.status(run) == "pending"
    assert not list(folder.run(run).glob(".result*"))
    monkeypatch.undo()
    assert work() == 0
    assert folder.status(run) == "done"


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("how", ["truncated", "empty", "missing", "binary", "flipped"])
def test_a_corrupted_result_is_made_again_identically(folder, work, how):
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


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize(("how", "step"), [("flipped", 1), ("flipped", 3), ("truncated", 2), ("missing", 1)])
def test_a_corrupted_loss_before_a_checkpoint_is_made_again_identically(folder, work, capsys, how, step):
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
    assert said.count(f"the logged loss of step {step} is missing or corrupted; ") == (2 if step < 3 else 1)


DOUBLE = """#!/bin/sh
# a worker that trains forever and stops slowly; nothing else starts
trap 'sleep 0.2; echo stopped > {place}/stopped-$5; exit 143' TERM
trap '' INT
[ $# = 5 ] || exit 1
echo '{{"step": 1, "loss": 2.0}}'
for i in $(seq 400); do sleep 0.05; done
"""


@pytest.fixture
def double(tmp_path, monkeypatch):
    """Workers that are shell scripts."""
    script = tmp_path / "double"
    script.write_text(DOUBLE.format(place=tmp_path))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return tmp_path


@pytest.fixture
def hears():
    """Enable SIGINT in this process; shells disable it for background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.extended
@pytest.mark.usefixtures("hears")
@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)])
def test_interrupted_twice_every_worker_still_ends_and_nothing_is_written(plan, folder, double, numbers):
    heard, lock = set(), threading.Lock()

    def on_progress(progress):
        # events of each worker come from a separate thread
        with lock:
            new = progress.item and progress.done and progress.item not in heard
            heard.update([progress.item] if new else [])
        if new and len(heard) == 2:
            threading.Thread(target=interrupt).start()

    def interrupt():
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.05)

    with pytest.raises(KeyboardInterrupt):
        run_study(plan, folder.path, LocalExecutor(2), "ordinate study", on_progress)
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
from ordinate.core.atomic_files import write_json
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
        atomic_files.write_json(path, {"old": 1})
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(call)], timeout=60)
        ends.append(done.returncode)
        assert json.loads(path.read_text()) in ({"old": 1}, {"new": list(range(1000))})
    assert ends.count(-signal.SIGKILL) >= 3
    assert ends[-1] == 0


def test_folders_of_unplanned_runs_are_left_alone(plan, folder):
    other = folder.path / "runs" / "thesis"
    other.mkdir(parents=True)
    (other / "result.json").write_text("precious")
    assert [run.name for run in StudyFolder(folder.path).missing(plan)] == [run.name for run in plan.runs()]
    assert (other / "result.json").read_text() == "precious"
