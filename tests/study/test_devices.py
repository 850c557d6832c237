import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from ordinate.cli.work import Work, engine_of
from ordinate.files import read_sealed
from ordinate.study import capacity, worker
from ordinate.study.conduct import conduct
from ordinate.study.engines.cluster import _needs as needs_of
from ordinate.study.engines.devices import Devices
from ordinate.study.engines.local import Local
from ordinate.study.engines.nodes import Nodes
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan
from ordinate.study.process import command_of
from ordinate.study.settle import settle
from ordinate.training.settings import Hardware

TWO = Hardware(2)


class Quiet:
    """Keeps what it is told."""

    def __init__(self):
        self.heard = []

    def reading(self, what):
        pass

    def planned(self, plan, todo):
        pass

    def news(self, news):
        self.heard.append((news.stage, news.step))


@pytest.fixture
def launched(monkeypatch):
    """As a launcher starts the first of two machines."""
    for name in ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID", "GROUP_WORLD_SIZE", "SLURM_NNODES", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(capacity, "cores", lambda: 4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


def small(**changes):
    base = {"task": "reverse:count=4", "schemes": ("none",), "steps": 4, "batch": 4, "width": 16, "layers": 1}
    return Plan(**(base | {"heads": 2, "multiples": (1,), "fresh": 8, "precision": "fp32"} | changes))


def test_a_study_on_two_devices_has_the_results_of_one_and_says_what_it_ran_on(tmp_path):
    plan, watcher = settle(small()), Quiet()
    folder = conduct(plan, tmp_path / "study", Devices(TWO, 1), "ordinate study", watcher)
    (run,) = plan.runs()
    assert folder.status(run) == "done", (folder.run(run) / "messages.txt").read_text()
    found = read_sealed(folder.result(run))
    assert found["cost"]["hardware"] == asdict(TWO)
    assert found["training"]["steps"] == [1, 2, 3, 4]
    # each step is told once
    assert [step for stage, step in watcher.heard if stage == "training" and step] == [1, 2, 3, 4]
    assert watcher.heard[-1][0] == "done"


def test_one_device_is_an_engine_of_its_own(four_cores):
    assert engine_of(small(), Hardware(), Work(), print) == Local(tell=print)
    assert engine_of(small(), TWO, Work(workers=2), print) == Devices(TWO, 2)
    assert not engine_of(small(), TWO, Work(), print).follow(Folder(Path("x")))
    assert "ordinate.study.worker" in command_of(Folder(Path("x")), "x", Hardware())
    assert "ordinate.study.ranks" in command_of(Folder(Path("x")), "x", TWO)


@pytest.mark.parametrize(
    ("hardware", "plan", "options", "message"),
    [
        (Hardware(3), small(), {}, "a batch of 4 for 3 devices; give a batch of 6"),
        (
            TWO,
            small(),
            {"workers": 3},
            r"what this machine has, 4 cores; got --workers 3, --devices 2 of 1 threads each",
        ),
        (
            TWO,
            small(threads=4),
            {},
            r"what this machine has, 4 cores; got --workers 1, --devices 2 of 4 threads each",
        ),
        (TWO, small(), {"workers": 1, "ray": "auto"}, "a cluster decides how many runs are done at a time"),
        (Hardware(1, 2), small(), {"ray": "auto"}, "Ray places a run on one machine; got --ray with --nodes 2"),
        (Hardware(1, 2), small(), {"workers": 2}, "machines together do one run at a time; got --workers 2"),
        (Hardware(1, 2), small(), {}, "a launcher starts the command on each of 2 machines; got none"),
    ],
)
def test_what_cannot_be_served_is_refused(hardware, plan, options, message, four_cores, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ValueError, match=message):
        engine_of(plan, hardware, Work(**options), print)


@pytest.mark.parametrize(("gpus", "kind"), [(1, "GPU"), (0, "core")])
def test_two_devices_on_a_machine_with_one_are_refused(gpus, kind, monkeypatch):
    monkeypatch.setattr(capacity, "cores", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ValueError, match=rf"got --devices 2 on a machine with 1 {kind}; give fewer"):
        engine_of(small(), TWO, Work(), print)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"NODE_RANK": "2"}, "there is one process on each of 2 machines; got machine 2 of None"),
        ({"SLURM_NNODES": "3"}, "there is one process on each of 2 machines; got machine 0 of 3"),
        ({"LOCAL_WORLD_SIZE": "4"}, "the launcher starts one process a machine, which starts the others; got 4"),
    ],
)
def test_a_launcher_of_other_machines_is_refused(given, message, launched):
    for name, value in given.items():
        launched.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        Nodes(Hardware(1, 2))


def test_the_first_machine_conducts(launched):
    assert Nodes(Hardware(1, 2)).node == 0
    launched.setenv("NODE_RANK", "1")
    assert Nodes(Hardware(1, 2)).node == 1


def test_runs_at_a_time_see_gpus_of_their_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [capacity.seat(TWO, number)["CUDA_VISIBLE_DEVICES"] for number in range(2)] == ["0,1", "2,3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,5,3,1")
    assert capacity.seat(TWO, 1) == {"CUDA_VISIBLE_DEVICES": "3,1"}
    assert capacity.capacity(TWO, 8) == 2
    with pytest.raises(ValueError, match="what this machine has, 4 GPUs; got --workers 3, --devices 2"):
        capacity.check_machine(TWO, 1, 3)


def test_a_process_without_memory_says_so_and_ends_the_others(tmp_path, monkeypatch):
    plan = settle(small())
    folder = Folder(tmp_path)
    folder.open(plan, {}, "ordinate study")
    (run,) = plan.runs()

    def short(*_):
        raise MemoryError("not enough")

    monkeypatch.setattr(worker, "carry_out", short)
    monkeypatch.setattr(worker, "end_with_parent", lambda: None)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(sys, "argv", ["worker", str(tmp_path), run.name, json.dumps(asdict(TWO))])
    assert worker.main() == 1
    assert folder.status(run) == "oom"


@pytest.fixture(scope="module")
def machines():
    """What begins commands on machines."""
    path = Path(__file__).parent / "machines.py"
    spec = importlib.util.spec_from_file_location("machines", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


SMALLEST = ["--width", "16", "--layers", "1", "--heads", "2", "--batch", "4", "--fresh", "8", "--multiples", "1"]
REVERSE = ["none", "--task", "reverse:count=4", "--precision", "fp32", "--threads", "1", *SMALLEST]


@pytest.mark.slow
def test_two_machines_train_one_model_and_the_first_says_how_far_it_is(tmp_path, machines):
    codes, said = machines.train(*REVERSE, "--steps", "4", "--out", str(tmp_path / "run"))
    assert codes == [0, 0], said
    assert "none-s0  done" in said[0]
    assert said[1] == ""
    found = json.loads((tmp_path / "run" / "runs" / "none-s0" / "result.json").read_text())
    assert found["cost"]["hardware"] == {"devices": 1, "nodes": 2, "strategy": None}
    assert found["training"]["steps"] == [1, 2, 3, 4]


@pytest.mark.slow
def test_machines_that_a_launcher_asks_to_end_save_what_they_have_first(tmp_path, machines):
    processes = machines.begin(*REVERSE, "--steps", "100000", "--out", str(tmp_path / "run"))
    place = tmp_path / "run" / "runs" / "none-s0" / "checkpoints"
    while not (place / "metrics.jsonl").exists():
        time.sleep(0.1)
        assert all(process.poll() is None for process in processes)
    for process in processes:
        os.killpg(process.pid, signal.SIGTERM)
    codes, said = machines.ended(processes)
    assert codes == [130, 130], said
    (saved,) = place.glob("step-*")
    assert int(saved.name.removeprefix("step-")) == len((place / "metrics.jsonl").read_text().splitlines())


@pytest.mark.slow
def test_a_device_that_is_lost_ends_the_run_which_then_goes_on_where_it_was(tmp_path):
    plan = settle(small(steps=40, checkpoint_every=5))
    (run,) = plan.runs()

    class Killer(Quiet):
        def news(self, news):
            super().news(news)
            if news.step == 12:
                for child in of_the_second_device(tmp_path):
                    os.kill(child, signal.SIGKILL)

    watcher = Killer()
    folder = conduct(plan, tmp_path / "study", Devices(TWO, 1), "ordinate study", watcher)
    assert folder.status(run) == "killed"
    message = read_sealed(folder.result(run))["message"]
    assert message.startswith("SIGKILL ended it")
    assert "device 2 of 2; the others were ended with it" in message
    watcher = Quiet()
    conduct(plan, folder.path, Devices(TWO, 1), "ordinate study", watcher)
    assert folder.status(run) == "done"
    assert min(step for stage, step in watcher.heard if stage == "training" and step) > 1


def of_the_second_device(place):
    """The processes of the second device of runs in this place."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words, known = (process / "cmdline").read_bytes(), b"\0" + (process / "environ").read_bytes()
            if b"ordinate.study.worker" in words and str(place).encode() in words and b"\0RANK=1\0" in known:
                found.append(int(process.name))
    return found


class Clustered:
    """What is asked of Ray."""

    def __init__(self, *machines):
        self.machines = machines

    def cluster_resources(self):
        return {name: much for machine in self.machines for name, much in machine.items()}

    def nodes(self):
        return [{"Alive": True, "Resources": machine} for machine in self.machines]


def test_ray_is_asked_for_as_much_as_a_run_takes_of_one_machine(untyped):
    small, large = {"CPU": 4.0}, {"CPU": 16.0, "GPU": 4.0}
    assert needs_of(Clustered(small), 2, Hardware()) == {"num_cpus": 2.0}
    assert needs_of(Clustered(small), 2, TWO) == {"num_cpus": 4.0}
    assert needs_of(Clustered(small, large), 2, TWO) == {"num_cpus": 2.0, "num_gpus": 2.0}
    with pytest.raises(
        ValueError, match="a machine of the cluster has all devices of a run; got --devices 2, and no"
    ):
        needs_of(Clustered(small, small), 3, TWO)
