"""What training is asked for, and how it ends."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from ordinate.checks import need, need_known, need_positive, need_whole

Watch = Callable[[int, float], None]
Strategy = Literal["ddp", "fsdp"]
# the environment variable that says where processes of one training meet; by default as torchrun says it
MEETING = "ORDINATE_MEETING"


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
class Hardware:
    """What one model is trained on: a process for each device, all in step, each with its share of every batch.

    It decides how fast training goes, and no result but in the last digits: sums are added up in another order.

    Args:
        devices: how many of each machine: GPUs, or processes on the cores where there are none.
        nodes: machines.
        strategy: `ddp` keeps a whole model on each device, `fsdp` a share of its numbers; by default ddp.
    """

    devices: int = 1
    nodes: int = 1
    strategy: Strategy | None = None

    def __post_init__(self) -> None:
        for name in ("devices", "nodes"):
            need_whole(name, getattr(self, name))
            need_positive(name, getattr(self, name))
        if self.strategy is not None:
            need_known("strategy", self.strategy, get_args(Strategy))
            need(
                self.world > 1,
                "a strategy is one for several devices",
                f"got strategy {self.strategy} with one",
                "give --devices 2 or more, or leave it out",
            )

    @property
    def world(self) -> int:
        """Devices of all machines."""
        return self.devices * self.nodes

    @property
    def shards(self) -> bool:
        """Whether each device keeps a share of the model only."""
        return self.strategy == "fsdp"

    def check(self, batch: int) -> None:
        """Raise a ValueError unless the sequences of a batch can be shared out evenly."""
        need(
            batch % self.world == 0,
            "each device takes as many sequences of a batch as the others",
            f"got a batch of {batch} for {self.world} devices",
            f"give a batch of {-(-batch // self.world) * self.world}, or other devices",
        )


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
