"""What training is asked for, and how it ends."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ordinate.checks import need, need_known, need_positive

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
    """The loss, its gradient or a weight is no longer a finite number.

    Args:
        step: the step at which it happened, counted from 1.
        what: the loss, the gradient or the largest weight.
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
        for name in ("warmup", "weight_decay"):
            value = getattr(self, name)
            need(0 <= value < math.inf, f"{name} must be 0 or more", f"got {value}", f"give a {name} of 0 or more")
        finite = self.learning_rate < math.inf
        need(finite, "learning_rate must be finite", f"got {self.learning_rate}", "give one such as 1e-3")
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
