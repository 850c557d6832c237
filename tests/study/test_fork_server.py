"""Forked runs end in the same way as separate processes; each test starts a real worker."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ordinate.core.progress import ignore
from ordinate.study.executor import Executor
from ordinate.study.fork_server import ForkedProcess, ForkServer, fork_server
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.runner import run_study
from ordinate.study.thread_autotuning import ThreadChoice
from ordinate.study.worker_process import WORKER, WorkerPool, worker_environment

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux only"),
]
SIZES = {"steps": 100_000, "batch": 2, "width": 16, "layers": 1, "heads": 2, "warmup_steps": 1, "task_samples": 8}


class Nobody(Executor):
    def choose_threads(self, folder, plan, runs, on_progress):
        return ThreadChoice(1)

    def run_all(self, folder, plan, runs, on_progress):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    plan = resolve(Plan(task="copy:count=4", schemes=("rope",), eval_length_multiples=(1,), **SIZES))
    return run_study(plan, tmp_path_factory.mktemp("forked") / "study", Nobody(), "ordinate study", ignore)


@pytest.fixture(scope="module")
def forks(folder):
    with fork_server(worker_environment(folder)) as forks:
        yield forks


@pytest.fixture
def begun(forks, folder, tmp_path):
    """A run in training."""
    with (tmp_path / "messages.txt").open("w") as messages:
        process = forks.start([str(folder.path), "rope-s0"], messages.fileno())
    with process.stdout:
        assert json.loads(process.stdout.readline())["step"] >= 1
        yield process
        if process.poll() is None:
            process.kill()
            process.wait()


def test_workers_keep_freed_memory_unless_they_are_told_otherwise(folder, monkeypatch):
    names = "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert all(int(worker_environment(folder)[name]) >= 2**25 for name in names)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert worker_environment(folder)["MALLOC_TRIM_THRESHOLD_"] == "131072"


def server_of(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid")))


def test_the_fork_server_has_one_thread(begun):
    assert server_of(begun) != os.getpid()
    assert len(list(Path(f"/proc/{server_of(begun)}/task").iterdir())) == 1


def test_a_forked_run_ends_by_the_signal_that_kills_it(begun):
    assert begun.poll() is None
    begun.kill()
    assert begun.wait() == begun.poll() == -signal.SIGKILL


def test_a_forked_run_that_is_terminated_saves_a_checkpoint(begun, folder):
    begun.terminate()
    assert begun.wait() == 128 + signal.SIGTERM
    (run,) = folder.plan().runs()
    assert list(folder.run(run).glob("checkpoints/step-*/manifest.json"))
    assert folder.status(run) == "pending"


def test_ctrl_c_interrupts_runs_and_not_the_fork_server(begun, forks):
    os.kill(server_of(begun), signal.SIGINT)
    os.kill(begun.pid, signal.SIGINT)
    assert begun.wait() == 128 + signal.SIGINT
    assert forks.control.fileno() > 0


def test_a_forked_run_that_cannot_start_reports_why(forks, tmp_path):
    with (tmp_path / "messages.txt").open("w+") as messages:
        process = forks.start([str(tmp_path), "rope-s0"], messages.fileno())
        with process.stdout:
            assert process.wait() == 1
        messages.seek(0)
        assert "study.json" in messages.read()


def test_a_run_is_killed_when_its_fork_server_dies():
    orphan = subprocess.Popen(["sleep", "60"])
    (said, saying), (status, telling) = os.pipe(), os.pipe()
    os.write(telling, b"%d\n" % orphan.pid)
    os.close(saying)
    os.close(telling)
    process = ForkedProcess(said, status)
    process.read_pid()
    with process.stdout:
        assert process.wait() == -signal.SIGKILL
    assert orphan.wait() == -signal.SIGKILL


def test_without_a_fork_server_a_run_starts_its_own_interpreter(tmp_path):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.close()
    with here, (tmp_path / "messages.txt").open("w") as messages:
        process = WorkerPool(ForkServer(here)).start_worker(
            ["true", "-m", WORKER, "study", "rope-s0"], messages, os.environ
        )
        with process.stdout:
            assert process.wait() == 0
        assert isinstance(process, subprocess.Popen)


def test_a_system_that_cannot_fork_does_without(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with fork_server({}) as forks:
        assert forks is None
