"""Gate of training checkpoints: a run that is resumed from files that were damaged."""

import contextlib
import random
import shutil
import warnings
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

from ordinate import Decoder, Shape
from ordinate.core.seeds import derive_seed
from ordinate.data.tasks.copy import Copy
from ordinate.training.checkpoint import MANIFEST, STATE, TENSORS, CorruptCheckpointWarning, list_checkpoints
from ordinate.training.loop import train
from ordinate.training.settings import TrainingSettings
from tests.bad_input.intake import mutation
from tests.bad_input.intake.outcome import Attempt, Wrong

TASK = Copy(count=2)
STEPS, EVERY = 6, 2


def trained(folder: Path, steps: int) -> torch.Tensor:
    """Train a tiny decoder, or go on with it, and return its weights."""
    torch.manual_seed(derive_seed(0, "model"))
    model = Decoder(Shape(vocabulary=TASK.vocabulary, width=8, layers=1, heads=1))
    settings = TrainingSettings(steps=STEPS, batch=2, warmup_steps=1, precision="fp32", checkpoint_every=EVERY)
    stopped = (lambda progress: _stop(folder, progress.done, steps)) if steps < STEPS else (lambda progress: None)
    train(model, TASK, settings, folder, stopped)
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


class _Stopped(Exception):
    pass


def _stop(folder: Path, done: float | None, steps: int) -> None:
    if done == steps:
        raise _Stopped


@cache
def interrupted() -> Path:
    """Return the folder of a run that ended between two checkpoints."""
    folder = Path(mkdtemp(prefix="interrupted-"))
    with contextlib.suppress(_Stopped):
        trained(folder, STEPS - 1)
    return folder


@cache
def expected() -> torch.Tensor:
    """Return the weights of a run that was not interrupted."""
    return trained(Path(mkdtemp(prefix="whole-")), STEPS)


def checkpoint(draw: random.Random, folder: Path) -> Attempt:
    """A file of the newest checkpoint, or the losses beside it, damaged or missing."""
    there = folder / "run"
    shutil.copytree(interrupted(), there)
    newest = list_checkpoints(there)[-1]
    path = draw.choice([newest / TENSORS, newest / STATE, newest / MANIFEST, there / "metrics.jsonl"])
    what = _damage(path, draw)

    def ask() -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CorruptCheckpointWarning)
            found = trained(there, STEPS)
        if not torch.equal(found, expected()):
            raise Wrong("the run ends with other weights")
        return found

    return Attempt(f"{path.name}: {what}", (newest.name, str(there), path.name), ask)


def _damage(path: Path, draw: random.Random) -> str:
    """Damage a file; return how."""
    if draw.random() < 0.15:
        path.unlink()
        return "missing"
    raw, what = mutation.mutated_bytes(path.read_bytes(), draw)
    path.write_bytes(raw)
    return what


def warm() -> None:
    """Train what the gate damages, so that this is not part of the time of an input."""
    interrupted()
    expected()
