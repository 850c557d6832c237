"""Runs that are forked end as processes of their own do; here each is one real worker."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ordinate.study.conduct import conduct
from ordinate.study.engine import Engine
from ordinate.study.fork_server import Forked, ForkServer, fork_server
from ordinate.study.pace import Pace
from ordinate.study.plan import Plan
from ordinate.study.process import WORKER, Crew, variables
from ordinate.study.settle import settle

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux only")
SIZES = {"steps": 100_000, "batch": 2, "width": 16, "layers": 1, "heads": 2, "warmup": 1, "fresh": 8}


class Nobody(Engine):
    def pace(self, folder, plan, runs):
        return Pace(1)

    def carry_out(self, folder, plan, runs, watch):
        pass


class Quiet:
    def reading(self, name):
        pass

    def planned(self, plan, todo):
        pass

    def news(self, news):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    plan = settle(Plan(task="copy:count=4", schemes=("rope",), multiples=(1,), **SIZES))
    return conduct(plan, tmp_path_factory.mktemp("forked") / "study", Nobody(), "ordinate study", Quiet())


@pytest.fixture(scope="module")
def forks(folder):
    with fork_server(variables(folder)) as forks:
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


def server_of(process):
    status = Path(f"/proc/{process.number}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid")))


def test_what_forks_has_one_thread(begun):
    assert server_of(begun) != os.getpid()
    assert len(list(Path(f"/proc/{server_of(begun)}/task").iterdir())) == 1


def test_a_forked_run_ends_by_the_signal_that_kills_it(begun):
    assert begun.poll() is None
    begun.kill()
    assert begun.wait() == begun.poll() == -signal.SIGKILL


def test_a_forked_run_that_is_asked_to_end_saves_what_it_has(begun, folder):
    begun.terminate()
    assert begun.wait() == 128 + signal.SIGTERM
    (run,) = folder.plan().runs()
    assert list(folder.run(run).glob("checkpoints/step-*/manifest.json"))
    assert folder.status(run) == "pending"


def test_the_keyboard_interrupts_runs_and_not_what_forks_them(begun, forks):
    os.kill(server_of(begun), signal.SIGINT)
    os.kill(begun.number, signal.SIGINT)
    assert begun.wait() == 128 + signal.SIGINT
    assert forks.control.fileno() > 0


def test_a_forked_run_that_cannot_begin_says_why(forks, tmp_path):
    with (tmp_path / "messages.txt").open("w+") as messages:
        process = forks.start([str(tmp_path), "rope-s0"], messages.fileno())
        with process.stdout:
            assert process.wait() == 1
        messages.seek(0)
        assert "study.json" in messages.read()


def test_a_run_of_a_fork_server_that_is_gone_is_ended():
    orphan = subprocess.Popen(["sleep", "60"])
    (said, saying), (status, telling) = os.pipe(), os.pipe()
    os.write(telling, b"%d\n" % orphan.pid)
    os.close(saying)
    os.close(telling)
    process = Forked(said, status)
    process.begin()
    with process.stdout:
        assert process.wait() == -signal.SIGKILL
    assert orphan.wait() == -signal.SIGKILL


def test_once_the_fork_server_is_gone_a_run_begins_by_itself(tmp_path):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.close()
    with here, (tmp_path / "messages.txt").open("w") as messages:
        process = Crew(ForkServer(here)).work(["true", "-m", WORKER, "study", "rope-s0"], messages, os.environ)
        with process.stdout:
            assert process.wait() == 0
        assert isinstance(process, subprocess.Popen)


def test_a_system_that_cannot_fork_does_without(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with fork_server({}) as forks:
        assert forks is None
