import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ordinate.core.seeds import derive_seed
from ordinate.training.checkpoint import checkpoint_path, list_checkpoints, read_checkpoint, step_of
from ordinate.training.settings import TrainingDiverged

VICTIM = Path(__file__).parent / "victim.py"
spec = importlib.util.spec_from_file_location("victim", VICTIM)
victim = importlib.util.module_from_spec(spec)
spec.loader.exec_module(victim)
run, weights = victim.run, victim.weights


def outcomes(folder, precision, kind, count, expected=None):
    command = [sys.executable, str(VICTIM), str(folder), precision, kind, str(count)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == (expected or count), done.stderr[-2000:]
    return found


@pytest.mark.extended
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_killed_at_any_step_it_ends_with_the_same_weights_to_the_bit(tmp_path, precision):
    found = outcomes(tmp_path, precision, "steps", victim.STEPS)
    assert all(item["died"] == -signal.SIGKILL and item["same"] for item in found), found


@pytest.mark.extended
def test_models_of_every_kind_end_with_the_same_weights(tmp_path):
    # two steps after a checkpoint
    found = outcomes(tmp_path, "fp32", "kinds", 6, len(victim.KINDS))
    assert all((item["calm"], item["died"], item["same"]) == (0, -signal.SIGKILL, True) for item in found), found


@pytest.mark.extended
def test_killed_at_any_call_that_writes_a_checkpoint_it_ends_with_the_same_weights(tmp_path):
    found = outcomes(tmp_path, "fp32", "calls", 21)
    assert all(item["same"] for item in found), found
    # three checkpoints of several calls each: all but the last tries die
    assert sum(item["died"] == -signal.SIGKILL for item in found) >= 18


@pytest.mark.crash
def test_killed_at_two_hundred_random_instants_it_ends_with_the_same_weights(tmp_path):
    found = outcomes(tmp_path, "fp32", "random", 200)
    assert all(item["same"] for item in found), [item for item in found if not item["same"]]
    assert all(item["died"] == -signal.SIGKILL for item in found), [item for item in found if item["died"] == 0]


def test_it_takes_exactly_the_planned_steps_and_notes_each(tmp_path):
    seen = []
    _, trace = run(tmp_path, watch=lambda progress: seen.append((progress.done, progress.loss)))
    assert list(trace.steps) == list(range(1, victim.STEPS + 1))
    assert seen == list(zip(trace.steps, trace.losses, strict=True))
    assert trace.losses[-1] < trace.losses[0]
    assert trace.tokens_per_second > 0
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000008", "step-00000012"]


def test_finished_training_is_read_not_repeated(tmp_path):
    first, trace = run(tmp_path)
    second, again = run(tmp_path, watch=lambda *_: pytest.fail("a step was taken"))
    assert torch.equal(weights(first), weights(second))
    assert again.losses == trace.losses
    assert again.tokens_per_second is None


def test_dropout_and_batches_follow_the_seed(tmp_path):
    one, other = run(tmp_path / "a", seed=1)[0], run(tmp_path / "b", seed=2)[0]
    same = run(tmp_path / "c", seed=1)[0]
    assert torch.equal(weights(one), weights(same))
    assert not torch.equal(weights(one), weights(other))


class Spoiled(victim.Sums):
    """The inputs of one step are all 10."""

    def __init__(self, at):
        self.seed = derive_seed(victim.settings().seed, "batch", at - 1)

    def sample(self, generator, count):
        batch = super().sample(generator, count)
        batch.inputs[:] = 10 if generator.initial_seed() == self.seed else batch.inputs
        return batch


class Brittle(nn.Sequential):
    """NaN where it reads a 10: in what it says, or in its gradient only."""

    where = "loss"

    def forward(self, ids):
        x = super().forward(ids)
        bad = (ids == 10).any()
        if self.where == "loss":
            return torch.where(bad, float("nan"), x)
        x.register_hook(lambda gradient: torch.where(bad, float("nan"), gradient))
        return x


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_number_that_is_not_finite_ends_training_with_its_step(tmp_path, where):
    model = Brittle(*victim.tied_model())
    model.where = where
    with pytest.raises(TrainingDiverged, match=f"the {where} of step 6 is not a finite number") as caught:
        run(tmp_path, model, Spoiled(6))
    assert caught.value.step == 6
    assert weights(model).isfinite().all()
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000004"]


def test_other_settings_or_another_model_are_refused_with_every_difference(tmp_path):
    run(tmp_path)
    with pytest.raises(
        ValueError, match=r"(?s)started with others:\n  learning_rate: 0.01 -> 0.02\n  grad_clip: 1.0 -> 2.0"
    ):
        run(tmp_path, learning_rate=0.02, grad_clip=2.0)
    model = victim.tied_model()
    model[1] = nn.Linear(16, 16, bias=False)
    with pytest.raises(ValueError, match=r"shape of 1.bias: \[16\] -> None"):
        run(tmp_path, model)


def test_other_data_or_another_type_are_refused(tmp_path):
    run(tmp_path)
    with pytest.raises(
        ValueError, match=r"others:\n  sha256 of the first batch: '[0-9a-f]{64}' -> '[0-9a-f]{64}'\ngive"
    ):
        run(tmp_path, task=Spoiled(1))
    with pytest.raises(ValueError, match=r"type of 0.weight: 'torch.float32' -> 'torch.float64'"):
        run(tmp_path, victim.tied_model().double())


def test_a_model_that_last_generated_text_is_trained_with_dropout(tmp_path):
    calm, _ = run(tmp_path / "a")
    again, _ = run(tmp_path / "b", victim.tied_model().eval())
    assert torch.equal(weights(again), weights(calm))


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    with pytest.raises(TrainingDiverged, match="the largest weight of step 1 is not a finite number"):
        run(tmp_path, learning_rate=1e38, grad_clip=1e9, warmup_steps=0, steps=1)
    assert list(tmp_path.glob("step-*")) == []


def test_how_often_checkpoints_are_written_may_change(tmp_path):
    run(tmp_path)
    assert run(tmp_path, checkpoint_every=3)[1].tokens_per_second is None


def test_kept_checkpoints_stay_beside_the_two_newest_and_change_no_weight(tmp_path):
    plain, _ = run(tmp_path / "plain")
    first = weights(victim.tied_model())

    def interrupt(progress):
        if progress.done == 7:
            raise KeyboardInterrupt

    kept = {"keep_steps": (0, 1, 5)}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "kept", watch=interrupt, **kept)
    model, trace = run(tmp_path / "kept", **kept)
    assert torch.equal(weights(model), weights(plain))
    assert list(trace.steps) == list(range(1, victim.STEPS + 1))
    assert [step_of(path) for path in list_checkpoints(tmp_path / "kept")] == [0, 1, 5, 8, 12]
    initial = read_checkpoint(checkpoint_path(tmp_path / "kept", 0))["state_dict"]
    assert torch.equal(initial["model.0.weight"].flatten(), first[: initial["model.0.weight"].numel()])


def test_training_resumes_from_the_initial_weights_that_were_kept(tmp_path):
    def interrupt(progress):
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "kept", watch=interrupt, keep_steps=(0,))
    assert [step_of(path) for path in list_checkpoints(tmp_path / "kept")] == [0]
    assert torch.equal(weights(run(tmp_path / "kept", keep_steps=(0,))[0]), weights(run(tmp_path / "plain")[0]))


def test_checkpoints_to_keep_must_be_steps_that_fit_on_the_disk(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="checkpoints to keep must be of steps 0 to 12; got 13; give steps of this"):
        run(tmp_path, keep_steps=(4, 13))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match=r"the checkpoints to keep must fit on the disk of .*; 2 need 0 MB of 0 MB"):
        run(tmp_path, keep_steps=(4, 8))
    assert list(tmp_path.glob("step-*")) == []
