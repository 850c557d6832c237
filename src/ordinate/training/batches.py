"""The deterministic batch stream, throughput measurement, and the identity check on resume."""

import hashlib
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import IterableDataset

from ordinate.core.seeds import derive_seed
from ordinate.data.batch import Batch
from ordinate.data.task import Task
from ordinate.training.checkpoint import read_checkpoint
from ordinate.training.settings import TrainingSettings

# settings that may change on resume because they do not affect the weights
RESUMABLE_SETTINGS = ("checkpoint_every", "keep", "keep_steps")


class ThroughputMeter:
    """Throughput in tokens per second; the first step after a start is excluded because it includes set-up cost."""

    def __init__(self) -> None:
        self.tokens, self.began, self.last = 0, 0.0, 0.0

    def update(self, tokens: int) -> None:
        """Record a finished step of this many tokens."""
        self.last = time.perf_counter()
        if not self.began:
            self.began = self.last
        else:
            self.tokens += tokens

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second; None before the second step."""
        return self.tokens / (self.last - self.began) if self.tokens else None


class BatchStream(IterableDataset[Batch]):
    """The batches of the remaining steps, each a function of seed and step only."""

    def __init__(self, task: Task, settings: TrainingSettings, start: int) -> None:
        self.task, self.settings, self.start = task, settings, start

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches from the first remaining step to the last."""
        for step in range(self.start, self.settings.steps):
            generator = torch.Generator().manual_seed(derive_seed(self.settings.seed, "batch", step))
            yield self.task.sample(generator, self.settings.batch)


class AheadStream(IterableDataset[Batch]):
    """The same batches in the same order, each drawn by a thread while the one before is trained on, and pinned.

    For GPUs: the processor draws the next batch while the device computes, and copies it without waiting.

    Args:
        batches: the batches.
        pinned: whether they are put into pinned memory, which needs a GPU.
    """

    def __init__(self, batches: Iterable[Batch], *, pinned: bool = True) -> None:
        self.batches, self.pinned = batches, pinned

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches; an error in drawing one is raised where that batch is due."""
        source = iter(self.batches)

        def draw() -> Batch | None:
            batch = next(source, None)
            return batch.pin_memory() if batch is not None and self.pinned else batch

        with ThreadPoolExecutor(1) as other:
            due = other.submit(draw)
            while (batch := due.result()) is not None:
                due = other.submit(draw)
                yield batch


def training_identity(model: nn.Module, task: Task, settings: TrainingSettings) -> dict[str, Any]:
    """Return what must not change on resume: settings, a hash of the first batch, shapes and dtypes of parameters."""
    kept = {name: value for name, value in asdict(settings).items() if name not in RESUMABLE_SETTINGS}
    batch = next(iter(BatchStream(task, settings, 0)))
    drawn = hashlib.sha256(b"".join(part.cpu().numpy().tobytes() for part in batch.tensors.values())).hexdigest()
    shapes = {f"shape of {name}": list(parameter.shape) for name, parameter in model.named_parameters()}
    types = {f"type of {name}": str(parameter.dtype) for name, parameter in model.named_parameters()}
    return {**kept, "sha256 of the first batch": drawn, **shapes, **types}


def completed_steps(newest: Path | None, new: dict[str, Any]) -> int:
    """Return the number of completed steps of a checkpoint; 0 without one.

    Raises:
        ValueError: the checkpoint belongs to another model, other data or other settings.
    """
    if newest is None:
        return 0
    checkpoint = read_checkpoint(newest)
    old = checkpoint["identity"]
    lines = [f"{k}: {old.get(k)!r} -> {new.get(k)!r}" for k in {**old, **new} if old.get(k) != new.get(k)]
    if lines:
        listed = "\n  ".join(lines)
        raise ValueError(
            f"a run must resume with the settings, data and model it started with; {newest} was started with "
            f"others:\n  {listed}\ngive the same, or another folder"
        )
    return int(checkpoint["global_step"])
