import json
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ordinate.data.batch import Batch
from ordinate.training.checkpoint import read_checkpoint
from ordinate.training.loop import train
from ordinate.training.process_group import ProcessGroup, check_devices, wait_for_all
from ordinate.training.settings import Hardware, TrainingSettings

TEAM = Path(__file__).parent / "team.py"


def scenarios(folder, kind, patience):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, str(TEAM), str(folder), kind]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=patience)
    # whole: which process ended first, and of what, is not in the last lines
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("team")
    return folder, scenarios(folder, "quick", 300)


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return scenarios(tmp_path_factory.mktemp("team"), "long", 1200)


def close(one, other, tolerance=1e-5):
    torch.testing.assert_close(torch.tensor(one["losses"]), torch.tensor(other["losses"]), atol=tolerance, rtol=0)
    for name, value in one["weights"].items():
        torch.testing.assert_close(
            torch.tensor(value), torch.tensor(other["weights"][name]), atol=10 * tolerance, rtol=0
        )


@pytest.mark.extended
def test_two_devices_learn_what_one_does_though_shares_of_a_batch_ask_unequally_much(quick):
    _, found = quick
    (one,) = found["one"]
    assert one["losses"][-1] < one["losses"][0] - 0.1
    for name in ("ddp", "fsdp"):
        for part in found[name]:
            close(part, one)


@pytest.mark.extended
def test_only_the_first_process_tells_how_far_it_is_and_writes(quick):
    folder, found = quick
    for name in ("ddp", "fsdp"):
        assert [part["told"] for part in found[name]] == [[1, 2, 3, 4, 5, 6], []]
        lines = (folder / name / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6]


@pytest.mark.extended
def test_checkpoints_are_alike_on_any_number_of_devices(quick):
    folder, _ = quick
    one, *others = (read_checkpoint(folder / name / "step-00000006") for name in ("one", "ddp", "fsdp"))
    for other in others:
        assert other["identity"] == one["identity"]
        assert {name: x.shape for name, x in other["state_dict"].items()} == {
            name: x.shape for name, x in one["state_dict"].items()
        }
        mine, theirs = (point["optimizer_states"][0] for point in (one, other))
        assert mine["param_groups"] == theirs["param_groups"]
        for number, state in mine["state"].items():
            for name, value in state.items():
                torch.testing.assert_close(theirs["state"][number][name], value, atol=1e-5, rtol=1e-3)


@pytest.mark.extended
def test_a_signal_to_one_process_stops_all_and_training_resumes_from_there(quick):
    folder, found = quick
    assert [part["ended"] for part in found["fsdp, stopped"]] == ["stopped by signal 15"] * 2
    # the next batch is drawn while a step is taken: which step receives the signal depends on timing
    assert any((folder / "cut" / f"step-0000000{step}").is_dir() for step in (3, 4))
    (one,) = found["one"]
    (again,) = found["fsdp, then one"]
    close(again, one)
    assert 1 not in again["told"]


@pytest.mark.extended
def test_on_as_many_devices_training_resumes_bit_for_bit(quick):
    _, found = quick
    assert [part["ended"] for part in found["ddp, stopped"]] == ["stopped by signal 15"] * 2
    calm, again = found["ddp"], found["ddp, again"]
    assert 1 not in again[0]["told"]
    assert [part["weights"] for part in again] == [part["weights"] for part in calm]
    assert again[0]["losses"] == calm[0]["losses"]


@pytest.mark.extended
def test_all_processes_agree_on_a_loss_that_is_not_finite_in_one(quick):
    folder, found = quick
    assert {part["ended"] for part in found["ddp, loss"]} == {"the loss of step 4 is not a finite number"}
    assert [path.name for path in (folder / "loss").glob("step-*")] == ["step-00000003"]


@pytest.mark.extended
def test_nothing_that_an_error_keeps_knows_the_other_processes(quick):
    # or ending their threads would wait for ever for one of them, now and then
    for part in quick[1]["ddp, loss"]:
        assert part["averaging"]
        assert not any(part["averaging"])


@pytest.mark.extended
def test_the_same_with_dropout_in_other_precision_and_from_one_device_to_two(long):
    (one,) = long["one"]
    for name in ("ddp", "fsdp"):
        for part in long[f"one, then {name}"]:
            close(part, one)
        assert {part["ended"] for part in long[f"{name}, gradient"]} == {
            "the gradient of step 4 is not a finite number"
        }
        calm, again = long[f"{name}, dropping"], long[f"{name}, dropping, again"]
        assert [part["weights"] for part in again] == [part["weights"] for part in calm]
        assert long[f"{name}, checkpointed"] == calm
    for kind, tolerance in (("bf16", 2e-2), ("reversible", 1e-4)):
        for name in ("ddp", "fsdp"):
            for part in long[f"{name}, {kind}"]:
                close(part, long[f"one, {kind}"][0], tolerance)


class Slow(dist.Store):
    """A store that is told of one key only after a signal."""

    def __init__(self, store, key):
        super().__init__()
        self.store, self.key, self.signal = store, key, threading.Event()

    def set(self, key, value):
        if key == self.key:
            self.signal.wait(30)
        self.store.set(key, value)

    def wait(self, keys, timeout):
        self.store.wait(keys, timeout)


@pytest.mark.parametrize(("late", "key"), [(0, "finished/0"), (1, "finished/1"), (1, "left/1")])
def test_no_process_leaves_before_all_have_finished_and_the_first_leaves_last(tmp_path, late, key):
    stores = [dist.FileStore(str(tmp_path / "store"), 2) for _ in range(2)]
    stores[late] = slow = Slow(stores[late], key)
    left = []

    def leave(rank):
        wait_for_all(stores[rank], rank, 2)
        left.append(rank)

    threads = [threading.Thread(target=leave, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    threads[1 - late].join(0.3)
    assert left == []
    slow.signal.set()
    for thread in threads:
        thread.join(30)
    assert sorted(left) == [0, 1]


def test_a_process_does_not_wait_for_ever_for_one_that_failed(tmp_path):
    store, began = dist.FileStore(str(tmp_path / "store"), 2), time.monotonic()
    wait_for_all(store, 0, 2, timedelta(seconds=0.1))
    assert time.monotonic() - began < 20
    assert store.check(["finished/0"])
    assert not store.check(["left/0"])


def test_one_process_has_the_whole_batch_and_several_their_rows():
    batch = Batch(torch.arange(6)[:, None], torch.arange(6)[:, None], {"far": torch.arange(6)[:, None]})
    assert ProcessGroup().local_part(batch) is batch
    shares = [ProcessGroup(rank, 3).local_part(batch) for rank in range(3)]
    assert [share.inputs.flatten().tolist() for share in shares] == [[0, 1], [2, 3], [4, 5]]
    assert shares[2].slices["far"].flatten().tolist() == [4, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "devices must be above zero; got 0"),
        ({"nodes": -1}, "nodes must be above zero; got -1"),
        ({"strategy": "fsdp"}, "a strategy needs several devices; got strategy fsdp with one device"),
        ({"devices": 2, "strategy": "zero"}, "no strategy is named 'zero'; there are: ddp, fsdp"),
    ],
)
def test_hardware_that_makes_no_sense_is_refused(options, message, untyped):
    with pytest.raises(ValueError, match=message):
        Hardware(**options)


def test_training_that_cannot_be_shared_out_is_refused_before_anything_is_written(tmp_path, monkeypatch, untyped):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    settings = TrainingSettings(steps=2, batch=6)
    with pytest.raises(
        ValueError, match=r"divisible by the number of devices; got a batch of 6 for 4 devices; give a batch of 8"
    ):
        train(nn.Linear(1, 1), None, settings, tmp_path / "run", hardware=Hardware(2, 2))
    assert not (tmp_path / "run").exists()
    with pytest.raises(
        ValueError, match=r"training on 2 devices needs one process for each; got 1; start it by `torchrun"
    ):
        train(nn.Linear(1, 1), None, settings, tmp_path / "run", hardware=Hardware(2))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="each device needs its own GPU; got 2 devices on a machine with 1"):
        check_devices(Hardware(2))
