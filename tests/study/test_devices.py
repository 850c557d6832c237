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

from ordinate.cli.executor_options import ExecutorOptions, make_executor
from ordinate.core.atomic_files import read_checksummed
from ordinate.study import device_allocation, worker
from ordinate.study.executors.cluster import _needs as needs_of
from ordinate.study.executors.devices import MultiDeviceExecutor
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.executors.nodes import MultiNodeExecutor
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.runner import run_study
from ordinate.study.study_folder import StudyFolder
from ordinate.study.worker_process import worker_command
from ordinate.training.settings import Hardware

TWO = Hardware(2)


class Recorder:
    """Records stage and step of progress events."""

    def __init__(self):
        self.heard = []

    def __call__(self, progress):
        self.heard.append((progress.stage, progress.done))


@pytest.fixture
def launched(monkeypatch):
    """Environment of the first of two machines under a launcher."""
    for name in ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID", "GROUP_WORLD_SIZE", "SLURM_NNODES", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(device_allocation, "available_cores", lambda: 4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


def small(**changes):
    base = {"task": "reverse:count=4", "schemes": ("none",), "steps": 4, "batch": 4, "width": 16, "layers": 1}
    return Plan(
        **(base | {"heads": 2, "eval_length_multiples": (1,), "task_samples": 8, "precision": "fp32"} | changes)
    )


@pytest.mark.extended
def test_a_study_on_two_devices_has_the_results_of_one_and_records_its_hardware(tmp_path):
    plan, watcher = resolve(small()), Recorder()
    folder = run_study(plan, tmp_path / "study", MultiDeviceExecutor(TWO, 1), "ordinate study", watcher)
    (run,) = plan.runs()
    assert folder.status(run) == "done", (folder.run(run) / "messages.txt").read_text()
    found = read_checksummed(folder.result(run))
    assert found["cost"]["hardware"] == asdict(TWO)
    assert found["training"]["steps"] == [1, 2, 3, 4]
    # one event for each step
    assert [step for stage, step in watcher.heard if stage == "training" and step] == [1, 2, 3, 4]
    assert watcher.heard[-1][0] == "done"


def test_one_device_has_its_own_executor(four_cores):
    assert make_executor(small(), Hardware(), ExecutorOptions()) == LocalExecutor()
    assert make_executor(small(), TWO, ExecutorOptions(workers=2)) == MultiDeviceExecutor(TWO, 2)
    assert not make_executor(small(), TWO, ExecutorOptions()).join_as_follower(StudyFolder(Path("x")))
    assert "ordinate.study.worker" in worker_command(StudyFolder(Path("x")), "x", Hardware())
    assert "ordinate.study.distributed_launcher" in worker_command(StudyFolder(Path("x")), "x", TWO)


@pytest.mark.parametrize(
    ("hardware", "plan", "options", "message"),
    [
        (Hardware(3), small(), {}, "a batch of 4 for 3 devices; give a batch of 6"),
        (
            TWO,
            small(),
            {"workers": 3},
            r"on this machine, which has 4 cores; got --workers 3, --devices 2 with 1 threads each",
        ),
        (
            TWO,
            small(threads=4),
            {},
            r"on this machine, which has 4 cores; got --workers 1, --devices 2 with 4 threads each",
        ),
        (TWO, small(), {"workers": 1, "ray": "auto"}, "a cluster determines the number of parallel runs"),
        (Hardware(1, 2), small(), {"ray": "auto"}, "Ray places a run on one machine; got --ray with --nodes 2"),
        (Hardware(1, 2), small(), {"workers": 2}, "several machines do one run at a time; got --workers 2"),
        (Hardware(1, 2), small(), {}, "a launcher must start the command on each of 2 machines; got none"),
    ],
)
def test_options_that_do_not_fit_the_hardware_are_rejected(hardware, plan, options, message, four_cores, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ValueError, match=message):
        make_executor(plan, hardware, ExecutorOptions(**options))


@pytest.mark.parametrize(("gpus", "kind"), [(1, "GPU"), (0, "core")])
def test_two_devices_on_a_machine_with_one_are_rejected(gpus, kind, monkeypatch):
    monkeypatch.setattr(device_allocation, "available_cores", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ValueError, match=rf"got --devices 2 on a machine with 1 {kind}; give fewer"):
        make_executor(small(), TWO, ExecutorOptions())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"NODE_RANK": "2"}, "one process must run on each of 2 machines; got machine 2 of None"),
        ({"SLURM_NNODES": "3"}, "one process must run on each of 2 machines; got machine 0 of 3"),
        ({"LOCAL_WORLD_SIZE": "4"}, "the launcher must start one process per machine; it starts the others; got 4"),
    ],
)
def test_a_launcher_of_other_machines_is_rejected(given, message, launched):
    for name, value in given.items():
        launched.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        MultiNodeExecutor(Hardware(1, 2))


def test_the_first_machine_leads(launched):
    assert MultiNodeExecutor(Hardware(1, 2)).node == 0
    launched.setenv("NODE_RANK", "1")
    assert MultiNodeExecutor(Hardware(1, 2)).node == 1


def test_parallel_runs_see_their_own_gpus_only(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [device_allocation.gpu_environment(TWO, number)["CUDA_VISIBLE_DEVICES"] for number in range(2)] == [
        "0,1",
        "2,3",
    ]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,5,3,1")
    assert device_allocation.gpu_environment(TWO, 1) == {"CUDA_VISIBLE_DEVICES": "3,1"}
    assert device_allocation.max_parallel_runs(TWO, 8) == 2
    with pytest.raises(ValueError, match="on this machine, which has 4 GPUs; got --workers 3, --devices 2"):
        device_allocation.check_machine(TWO, 1, 3)


def test_a_rank_out_of_memory_reports_it_and_ends_the_others(tmp_path, monkeypatch):
    plan = resolve(small())
    folder = StudyFolder(tmp_path)
    folder.open(plan, {}, "ordinate study")
    (run,) = plan.runs()

    def short(*_):
        raise MemoryError("not enough")

    monkeypatch.setattr(worker, "train_and_evaluate", short)
    monkeypatch.setattr(worker, "end_with_parent", lambda: None)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(sys, "argv", ["worker", str(tmp_path), run.name, json.dumps(asdict(TWO))])
    assert worker.main() == 1
    assert folder.status(run) == "oom"


@pytest.fixture(scope="module")
def machines():
    """Starts commands on machines."""
    path = Path(__file__).parent / "machines.py"
    spec = importlib.util.spec_from_file_location("machines", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


SMALLEST = [
    "--width",
    "16",
    "--layers",
    "1",
    "--heads",
    "2",
    "--batch",
    "4",
    "--task-samples",
    "8",
    "--eval-length-multiples",
    "1",
]
REVERSE = ["none", "--task", "reverse:count=4", "--precision", "fp32", "--threads", "1", *SMALLEST]


@pytest.mark.extended
def test_two_machines_train_one_model_and_the_first_reports_progress(tmp_path, machines):
    codes, said = machines.train(*REVERSE, "--steps", "4", "--out", str(tmp_path / "run"))
    assert codes == [0, 0], said
    assert "none-s0  done" in said[0]
    assert said[1] == ""
    found = json.loads((tmp_path / "run" / "runs" / "none-s0" / "result.json").read_text())
    assert found["cost"]["hardware"] == {"devices": 1, "nodes": 2, "strategy": None}
    assert found["training"]["steps"] == [1, 2, 3, 4]


@pytest.mark.extended
def test_machines_that_a_launcher_terminates_save_a_checkpoint_first(tmp_path, machines):
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


@pytest.mark.extended
def test_a_lost_device_ends_the_run_which_then_resumes(tmp_path):
    plan = resolve(small(steps=40, checkpoint_every=5))
    (run,) = plan.runs()

    class Killer(Recorder):
        def __call__(self, progress):
            super().__call__(progress)
            if progress.done == 12:
                for child in of_the_second_device(tmp_path):
                    os.kill(child, signal.SIGKILL)

    watcher = Killer()
    folder = run_study(plan, tmp_path / "study", MultiDeviceExecutor(TWO, 1), "ordinate study", watcher)
    assert folder.status(run) == "killed"
    message = read_checksummed(folder.result(run))["message"]
    assert message.startswith("killed by SIGKILL")
    assert "device 2 of 2; the others were killed" in message
    watcher = Recorder()
    run_study(plan, folder.path, MultiDeviceExecutor(TWO, 1), "ordinate study", watcher)
    assert folder.status(run) == "done"
    assert min(step for stage, step in watcher.heard if stage == "training" and step) > 1


def of_the_second_device(place):
    """Process ids of the second rank of runs in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words, known = (process / "cmdline").read_bytes(), b"\0" + (process / "environ").read_bytes()
            if b"ordinate.study.worker" in words and str(place).encode() in words and b"\0RANK=1\0" in known:
                found.append(int(process.name))
    return found


class Clustered:
    """Records the resources requested from Ray."""

    def __init__(self, *machines):
        self.machines = machines

    def cluster_resources(self):
        return {name: much for machine in self.machines for name, much in machine.items()}

    def nodes(self):
        return [{"Alive": True, "Resources": machine} for machine in self.machines]


def test_ray_requests_are_what_a_run_needs_of_one_machine(untyped):
    small, large = {"CPU": 4.0}, {"CPU": 16.0, "GPU": 4.0}
    assert needs_of(Clustered(small), 2, Hardware()) == {"num_cpus": 2.0}
    assert needs_of(Clustered(small), 2, TWO) == {"num_cpus": 4.0}
    assert needs_of(Clustered(small, large), 2, TWO) == {"num_cpus": 2.0, "num_gpus": 2.0}
    with pytest.raises(
        ValueError, match="a single machine of the cluster must have all devices of a run; got --devices 2; no"
    ):
        needs_of(Clustered(small, small), 3, TWO)
