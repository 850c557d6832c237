"""The batches of a training, how fast they go by, and what must be the same when it goes on."""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import IterableDataset

from ordinate.batch import Batch
from ordinate.seeds import seed_of
from ordinate.task import Task
from ordinate.training.checkpoint import PlainCheckpoints
from ordinate.training.settings import Settings

# settings that may differ when training goes on: they change no weight
FREE = ("checkpoint_every", "keep")


class Clock:
    """How fast training goes; the first step since it was started is left out, as it pays for starting."""

    def __init__(self) -> None:
        self.tokens, self.began, self.last = 0, 0.0, 0.0

    def count(self, tokens: int) -> None:
        """A step is done."""
        self.last = time.perf_counter()
        if not self.began:
            self.began = self.last
        else:
            self.tokens += tokens

    @property
    def speed(self) -> float | None:
        """Tokens a second; None before the second step."""
        return self.tokens / (self.last - self.began) if self.tokens else None


class Batches(IterableDataset[Batch]):
    """The batches of the steps still to do, each a function of the seed and the step."""

    def __init__(self, task: Task, settings: Settings, start: int) -> None:
        self.task, self.settings, self.start = task, settings, start

    def __iter__(self) -> Iterator[Batch]:
        """From the first step still to do to the last."""
        for step in range(self.start, self.settings.steps):
            generator = torch.Generator().manual_seed(seed_of(self.settings.seed, "batch", step))
            yield self.task.sample(generator, self.settings.batch)


def identity(model: nn.Module, task: Task, settings: Settings) -> dict[str, Any]:
    """What must be the same when training goes on: settings, data and parameters."""
    kept = {name: value for name, value in asdict(settings).items() if name not in FREE}
    batch = next(iter(Batches(task, settings, 0)))
    drawn = hashlib.sha256(b"".join(part.cpu().numpy().tobytes() for part in batch.tensors.values())).hexdigest()
    shapes = {f"shape of {name}": list(parameter.shape) for name, parameter in model.named_parameters()}
    types = {f"type of {name}": str(parameter.dtype) for name, parameter in model.named_parameters()}
    return {**kept, "sha256 of the first batch": drawn, **shapes, **types}


def steps_done(newest: Path | None, new: dict[str, Any]) -> int:
    """How many steps a checkpoint has done.

    Raises:
        ValueError: it is of another model, other data or other settings.
    """
    if newest is None:
        return 0
    checkpoint = PlainCheckpoints().load_checkpoint(newest)
    old = checkpoint["identity"]
    lines = [f"{k}: {old.get(k)!r} -> {new.get(k)!r}" for k in {**old, **new} if old.get(k) != new.get(k)]
    if lines:
        listed = "\n  ".join(lines)
        raise ValueError(
            f"a run goes on with the settings, data and model it began with; {newest} was begun with "
            f"others:\n  {listed}\ngive the same, or another folder"
        )
    return int(checkpoint["global_step"])
