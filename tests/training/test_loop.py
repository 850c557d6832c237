import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from ordinate.training.checkpoint import DamagedError, DamagedWarning
from ordinate.training.loop import train
from ordinate.training.settings import Diverged, Settings, Stopped

VICTIM = Path(__file__).parent / "victim.py"
spec = importlib.util.spec_from_file_location("victim", VICTIM)
victim = importlib.util.module_from_spec(spec)
spec.loader.exec_module(victim)


def outcomes(folder, precision, kind, count):
    command = [sys.executable, str(VICTIM), str(folder), precision, kind, str(count)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == count, done.stderr[-2000:]
    return found


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_killed_at_any_step_it_ends_with_the_same_weights_to_the_bit(tmp_path, precision):
    found = outcomes(tmp_path, precision, "steps", victim.STEPS)
    assert all(item["died"] == -signal.SIGKILL and item["same"] for item in found), found


def test_killed_at_any_call_that_writes_a_checkpoint_it_ends_with_the_same_weights(tmp_path):
    found = outcomes(tmp_path, "fp32", "calls", 21)
    assert all(item["same"] for item in found), found
    # three checkpoints of several calls each: all but the last tries die
    assert sum(item["died"] == -signal.SIGKILL for item in found) >= 18


@pytest.mark.crash
def test_killed_at_two_hundred_random_instants_it_ends_with_the_same_weights(tmp_path):
    found = outcomes(tmp_path, "fp32", "random", 200)
    assert all(item["same"] for item in found), [item for item in found if not item["same"]]
    assert sum(item["died"] != 0 for item in found) >= 20


def run(folder, model=None, task=None, watch=None, **changes):
    model = model or victim.tied_model()
    trace = train(model, task or victim.Sums(), victim.settings(**changes), folder, watch)
    return model, trace


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_it_takes_exactly_the_planned_steps_and_notes_each(tmp_path):
    seen = []
    _, trace = run(tmp_path, watch=lambda step, loss: seen.append((step, loss)))
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


@pytest.mark.parametrize("how", ["missing", "empty", "truncated", "flipped"])
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, how, name):
    calm, _ = run(tmp_path)
    damage(tmp_path / "step-00000012" / name, how)
    with pytest.warns(DamagedWarning, match="step-00000012.*going on from the one before, step-00000008"):
        again, trace = run(tmp_path)
    assert torch.equal(weights(again), weights(calm))
    assert list(trace.steps) == list(range(1, victim.STEPS + 1))


def test_when_every_checkpoint_is_damaged_each_reason_is_told(tmp_path):
    run(tmp_path)
    for path in tmp_path.glob("step-*"):
        damage(path / "state.json", "truncated")
    with pytest.raises(DamagedError, match=r"(?s)step-00000012.*step-00000008.*delete the folder"):
        run(tmp_path)


class Spoiled(victim.Sums):
    """Its targets make the loss of one step infinite."""

    def __init__(self, at):
        self.at, self.count = at, 0

    def sample(self, generator, count):
        self.count += 1
        batch = super().sample(generator, count)
        batch.inputs[:] = 10 if self.count == self.at else batch.inputs
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
    with pytest.raises(Diverged, match=f"the {where} of step 6 is not a finite number") as caught:
        run(tmp_path, model, Spoiled(6))
    assert caught.value.step == 6
    assert weights(model).isfinite().all()
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000004"]


def test_other_settings_or_another_model_are_refused_with_every_difference(tmp_path):
    run(tmp_path)
    with pytest.raises(
        ValueError, match=r"(?s)begun with others:\n  learning_rate: 0.01 -> 0.02\n  clip: 1.0 -> 2.0"
    ):
        run(tmp_path, learning_rate=0.02, clip=2.0)
    model = victim.tied_model()
    model[1] = nn.Linear(16, 16, bias=False)
    with pytest.raises(ValueError, match=r"shape of 1.bias: \[16\] -> None"):
        run(tmp_path, model)


def test_how_often_checkpoints_are_written_may_change(tmp_path):
    run(tmp_path)
    assert run(tmp_path, checkpoint_every=3)[1].tokens_per_second is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_after_the_step_with_a_checkpoint(tmp_path, number):
    calm, _ = run(tmp_path / "calm")
    with pytest.raises(Stopped) as caught:
        run(tmp_path / "cut", watch=lambda step, _: os.kill(os.getpid(), number) if step == 5 else None)
    assert caught.value.signal == number
    assert (tmp_path / "cut" / "step-00000005").is_dir()
    assert torch.equal(weights(run(tmp_path / "cut")[0]), weights(calm))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be above zero; got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be above zero"),
        ({"precision": "fp8"}, "no precision is named 'fp8'"),
        ({"keep": 1}, "two checkpoints are kept at least"),
    ],
)
def test_settings_without_meaning_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Settings(**({"steps": 1, "batch": 1} | changes))
