import errno
import importlib.util
import os
import signal
from pathlib import Path

import pytest
import torch

from ordinate.training import lightning
from ordinate.training.checkpoint import CorruptCheckpointError, CorruptCheckpointWarning
from ordinate.training.settings import TrainingDiverged, TrainingStopped

VICTIM = Path(__file__).parent / "victim.py"
spec = importlib.util.spec_from_file_location("victim", VICTIM)
victim = importlib.util.module_from_spec(spec)
spec.loader.exec_module(victim)
run, weights = victim.run, victim.weights


def damage(path, how):
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)


@pytest.mark.covering(1)
@pytest.mark.parametrize("how", ["missing", "empty", "truncated", "flipped"])
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, how, name):
    calm, _ = run(tmp_path)
    damage(tmp_path / "step-00000012" / name, how)
    with pytest.warns(
        CorruptCheckpointWarning, match="step-00000012.*resuming from the previous checkpoint, step-00000008"
    ):
        again, trace = run(tmp_path)
    assert torch.equal(weights(again), weights(calm))
    assert list(trace.steps) == list(range(1, victim.STEPS + 1))


def test_when_every_checkpoint_is_corrupt_each_reason_is_reported(tmp_path):
    run(tmp_path)
    for path in tmp_path.glob("step-*"):
        damage(path / "state.json", "truncated")
    with pytest.raises(CorruptCheckpointError, match=r"(?s)step-00000012.*step-00000008.*delete the folder"):
        run(tmp_path)


def test_training_without_its_losses_does_not_resume(tmp_path):
    run(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match="every step up to the checkpoint's, 12; it has 0 valid lines"):
        run(tmp_path)


def test_a_damaged_checkpoint_is_not_counted_among_those_kept(tmp_path):
    run(tmp_path)
    damage(tmp_path / "step-00000012" / "state.json", "empty")
    with pytest.warns(CorruptCheckpointWarning), pytest.raises(TrainingStopped):
        run(tmp_path, watch=lambda progress: os.kill(os.getpid(), signal.SIGTERM) if progress.done == 9 else None)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000008", "step-00000009"]


def test_a_cluster_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hpc_ckpt_1.ckpt").write_bytes(b"a checkpoint of somebody else's")
    for name, value in {"NTASKS": "4", "JOB_NAME": "x", "JOB_ID": "1", "PROCID": "0", "LOCALID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert run(tmp_path / "run")[1].steps[-1] == victim.STEPS


@pytest.mark.parametrize(("limit", "what"), [(3000, "a checkpoint"), (60, "the loss of a step")])
def test_after_a_full_disk_the_same_command_resumes_once_there_is_space(tmp_path, limit, what):
    resource = pytest.importorskip("resource")
    calm, _ = run(tmp_path / "calm")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(
            OSError, match=rf"cannot write {what} .*free space and run the same command again"
        ) as caught:
            run(tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert torch.equal(weights(run(tmp_path / "full")[0]), weights(calm))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_after_the_step_with_a_checkpoint(tmp_path, number):
    calm, _ = run(tmp_path / "calm")
    with pytest.raises(TrainingStopped) as caught:
        run(tmp_path / "cut", watch=lambda progress: os.kill(os.getpid(), number) if progress.done == 5 else None)
    assert caught.value.signal == number
    assert (tmp_path / "cut" / "step-00000005").is_dir()
    assert torch.equal(weights(run(tmp_path / "cut")[0]), weights(calm))


def test_a_signal_between_steps_stops_with_a_checkpoint_too(tmp_path, monkeypatch):
    calm, _ = run(tmp_path / "calm")
    ended = lightning.TrainingModule.on_train_batch_end

    def late(self, *args):
        ended(self, *args)
        if self.global_step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(lightning.TrainingModule, "on_train_batch_end", late)
    with pytest.raises(TrainingStopped):
        run(tmp_path / "cut")
    assert (tmp_path / "cut" / "step-00000006").is_dir()
    monkeypatch.undo()
    assert torch.equal(weights(run(tmp_path / "cut")[0]), weights(calm))


def test_a_signal_while_finished_training_is_read_is_not_lost(tmp_path, monkeypatch):
    run(tmp_path)
    monkeypatch.setattr(lightning.TrainingModule, "setup", lambda self, stage: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(TrainingStopped, match="stopped by signal 15"):
        run(tmp_path)


def test_a_second_interrupt_stops_at_once_and_corrupts_nothing(tmp_path):
    calm, _ = run(tmp_path / "calm")
    handler = signal.getsignal(signal.SIGINT)

    def twice(progress):
        for _ in range(2 * (progress.done == 5)):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", watch=twice)
    assert signal.getsignal(signal.SIGINT) is handler
    assert torch.equal(weights(run(tmp_path / "cut")[0]), weights(calm))


def test_an_optimiser_that_is_poisoned_ends_training_before_anything_is_saved_of_it(tmp_path, monkeypatch):
    started = lightning.TrainingModule.on_train_batch_start

    def poisoned(self, *given):
        if self.global_step == 5:
            for state in self.trainer.optimizers[0].state.values():
                state["exp_avg"].fill_(float("nan"))
        return started(self, *given)

    monkeypatch.setattr(lightning.TrainingModule, "on_train_batch_start", poisoned)
    with pytest.raises(TrainingDiverged, match="the loss of step 7 is not a finite number"):
        run(tmp_path)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000004"]
    monkeypatch.undo()
    calm, _ = run(tmp_path / "calm")
    assert torch.equal(weights(run(tmp_path)[0]), weights(calm))
