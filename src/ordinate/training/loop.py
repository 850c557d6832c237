"""Train a model so that being killed at any instant changes nothing of the outcome."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ordinate.checks import need, need_known, need_positive
from ordinate.task import Task
from ordinate.training.metrics import Metrics

Watch = Callable[[int, float], None]


class Stopped(RuntimeError):  # noqa: N818 - an outcome, not a mistake
    """Training was asked to stop by a signal, and saved a checkpoint first.

    Args:
        signal: the number of the signal.
    """

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal


class Diverged(RuntimeError):  # noqa: N818 - an outcome, not a mistake
    """The loss or its gradient is no longer a finite number.

    Args:
        step: the step at which it happened, counted from 1.
        what: the loss or the gradient.
    """

    def __init__(self, step: int, what: str) -> None:
        super().__init__(f"the {what} of step {step} is not a finite number")
        self.step = step


@dataclass(frozen=True)
class Settings:
    """How to train.

    Args:
        steps: optimiser steps.
        batch: sequences in a step.
        seed: decides batches and dropout, with the step.
        learning_rate: the highest.
        warmup: steps in which it rises.
        weight_decay: on matrices.
        clip: longest gradient.
        precision: `bf16` or `fp32` matrix products.
        checkpoint_every: steps between checkpoints.
        keep: checkpoints kept; at least 2, so that a damaged one has one before it.
    """

    steps: int
    batch: int
    seed: int = 0
    learning_rate: float = 1e-3
    warmup: int = 0
    weight_decay: float = 0.1
    clip: float = 1.0
    precision: str = "fp32"
    checkpoint_every: int = 100
    keep: int = 2

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "learning_rate", "clip", "checkpoint_every"):
            need_positive(name, getattr(self, name))
        need_known("precision", self.precision, ("bf16", "fp32"))
        need(self.keep >= 2, "two checkpoints are kept at least", f"got keep={self.keep}", "give 2 or more")


@dataclass(frozen=True)
class Trace:
    """What training was like.

    Args:
        steps: each step, from 1.
        losses: the loss of each [nats a token].
        tokens_per_second: how fast it went since it was last started; None if nothing was left to do.
    """

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    tokens_per_second: float | None


def train(model: nn.Module, task: Task, settings: Settings, folder: Path, watch: Watch | None = None) -> Trace:
    """Train `model` on `task`, going on from the newest whole checkpoint in `folder`.

    Batches and dropout are functions of the seed and the step, so a run that was killed ends with the same weights,
    bit for bit, as one that was not.

    Args:
        model: gives the logits of each place; has the final weights afterwards.
        task: what to learn.
        settings: how.
        folder: for checkpoints and metrics.jsonl.
        watch: is told each step and its loss.

    Raises:
        Diverged: the loss or the gradient stopped being finite; the weights are those before that step.
        Stopped: a SIGTERM or SIGINT came; a checkpoint was saved.
        ValueError: the checkpoints are of another model or of other settings (each difference is named).
        OSError: a checkpoint cannot be written.
    """
    from ordinate.training.lightning import fit

    folder.mkdir(parents=True, exist_ok=True)
    metrics = Metrics(folder / "metrics.jsonl")
    clock = fit(model, task, settings, folder, metrics, watch)
    rows = metrics.read()
    return Trace(tuple(step for step, _ in rows), tuple(loss for _, loss in rows), clock.speed)
