"""Training configuration, outcome and exceptions."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from ordinate.core.checks import need, need_known, need_positive, need_positive_counts
from ordinate.core.option_values import normalise_fields

Strategy = Literal["ddp", "fsdp"]
Precision = Literal["bf16", "fp32"]
# environment variable with the init_method of the process group; by default env://, as set by torchrun
RENDEZVOUS_VARIABLE = "ORDINATE_RENDEZVOUS"


class TrainingStopped(RuntimeError):  # noqa: N818 - an outcome, not a mistake
    """Training was stopped by a signal after saving a checkpoint.

    Args:
        signal: the signal number.
    """

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal


class TrainingDiverged(RuntimeError):  # noqa: N818 - an outcome, not a mistake
    """The loss, its gradient or a weight is not finite.

    Args:
        step: the step at which it happened, counted from 1.
        what: "loss", "gradient" or "largest weight".
    """

    def __init__(self, step: int, what: str) -> None:
        super().__init__(f"the {what} of step {step} is not a finite number")
        self.step = step


@dataclass(frozen=True)
class TrainingSettings:
    """Training hyperparameters.

    Args:
        steps: optimiser steps.
        batch: batch size in sequences, over all devices.
        seed: determines batches and dropout, together with the step.
        learning_rate: peak learning rate.
        warmup_steps: warm-up steps.
        weight_decay: AdamW weight decay, on matrices only.
        grad_clip: maximum gradient norm.
        precision: `bf16` or `fp32` matrix products.
        checkpoint_every: steps between checkpoints.
        keep: number of newest checkpoints kept; at least 2, so that a corrupt one has a predecessor.
        keep_steps: steps whose checkpoints are saved and kept as well; 0: the initial weights.
    """

    steps: int
    batch: int
    seed: int = 0
    learning_rate: float = 1e-3
    warmup_steps: int = 0
    weight_decay: float = 0.1
    grad_clip: float = 1.0
    precision: str = "fp32"
    checkpoint_every: int = 100
    keep: int = 2
    keep_steps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        normalise_fields(self)
        for name in ("steps", "batch", "learning_rate", "grad_clip", "checkpoint_every"):
            need_positive(name, getattr(self, name))
        for name in ("warmup_steps", "weight_decay"):
            value = getattr(self, name)
            need(0 <= value < math.inf, f"{name} must be 0 or more", f"got {value}", f"give a {name} of 0 or more")
        finite = self.learning_rate < math.inf
        need(finite, "learning_rate must be finite", f"got {self.learning_rate}", "give one such as 1e-3")
        need_known("precision", self.precision, ("bf16", "fp32"))
        need(self.keep >= 2, "at least two checkpoints must be kept", f"got keep={self.keep}", "give 2 or more")
        outside = [step for step in self.keep_steps if not 0 <= step <= self.steps]
        must = f"checkpoints to keep must be of steps 0 to {self.steps}"
        need(not outside, must, f"got {', '.join(map(str, outside))}", "give steps of this training")


@dataclass(frozen=True)
class Hardware:
    """Devices of one training run: data-parallel, one process per device, each with its part of every batch.

    It affects speed, and results only in the last digits, because sums are accumulated in another order.

    Args:
        devices: devices per machine: GPUs, or CPU processes where there are none.
        nodes: number of machines.
        strategy: `ddp` replicates the model on each device, `fsdp` shards its parameters; default ddp.
    """

    devices: int = 1
    nodes: int = 1
    strategy: Strategy | None = None

    def __post_init__(self) -> None:
        need_positive_counts(devices=self.devices, nodes=self.nodes)
        if self.strategy is not None:
            need_known("strategy", self.strategy, get_args(Strategy))
            need(
                self.world_size > 1,
                "a strategy needs several devices",
                f"got strategy {self.strategy} with one device",
                "give --devices 2 or more, or leave the strategy out",
            )

    @property
    def world_size(self) -> int:
        """World size: devices of all machines."""
        return self.devices * self.nodes

    @property
    def is_sharded(self) -> bool:
        """Whether parameters are sharded (FSDP)."""
        return self.strategy == "fsdp"

    def check_batch_size(self, batch: int) -> None:
        """Raise a ValueError unless the batch size is divisible by the world size."""
        need(
            batch % self.world_size == 0,
            "the batch size must be divisible by the number of devices",
            f"got a batch of {batch} for {self.world_size} devices",
            f"give a batch of {-(-batch // self.world_size) * self.world_size}, or another number of devices",
        )


@dataclass(frozen=True)
class TrainingHistory:
    """Training history.

    Args:
        steps: the steps, from 1.
        losses: training loss of each step [nats per token].
        tokens_per_second: throughput since the last start; None if no step was left.
    """

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    tokens_per_second: float | None


def fast_precision() -> Precision:
    """Return the faster precision of this machine: `bf16` with hardware support for bfloat16, otherwise `fp32`."""
    # imported here because the command line reads this module before it needs torch
    import torch

    from ordinate.ops.matmul import bfloat16_is_faster

    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if bfloat16_is_faster() else "fp32"
