"""The contract of a replication whose claims are about training: small models, and what was measured on each."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from torch import nn

from ordinate.core.checks import need
from ordinate.core.seeds import derive_seed
from ordinate.data.task import Task
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.shape import Shape
from ordinate.replications.replication import Replication
from ordinate.replications.result import Control
from ordinate.replications.trained_runs import TrainedRun, TrainedRuns
from ordinate.training.settings import TrainingSettings


@dataclass(frozen=True)
class Arm:
    """Models that are trained alike but for their seed.

    Args:
        name: name of the arm.
        shape: hyperparameters of the model.
        steps: optimiser steps.
        batch: sequences in a batch.
        learning_rate: peak learning rate.
        warmup_steps: warm-up steps.
        start: the arm whose trained model of the same seed is trained on; None: new weights. The two share all
            parameters; what has none may differ (RoPE is taken away from a trained model).
    """

    name: str
    shape: Shape
    steps: int
    batch: int
    learning_rate: float
    warmup_steps: int = 20
    start: "Arm | None" = None

    def build(self) -> nn.Module:
        """Construct the model: an encoder if the shape is that of one, else a decoder."""
        return Encoder(self.shape) if isinstance(self.shape, EncoderShape) else Decoder(self.shape)

    def settings(self, seed: int, looks: int = 1) -> TrainingSettings:
        """Return the training settings of a seed, which are the same for all arms: seeds are paired.

        Args:
            seed: the seed.
            looks: checkpoints kept, at equal distances, the last one of the trained model.

        Raises:
            ValueError: the steps are not divisible by the looks.
        """
        must, came = "the steps of an arm must be divisible by the looks", f"{self.steps} steps and {looks} looks"
        need(self.steps % looks == 0, must, f"got {came}", "choose a number of steps that is")
        return TrainingSettings(
            steps=self.steps,
            batch=self.batch,
            # a model that is trained on reads new batches
            seed=seed if self.start is None else derive_seed(seed, "trained on"),
            learning_rate=self.learning_rate,
            warmup_steps=self.warmup_steps,
            checkpoint_every=self.steps // looks,
            # room for those that interruptions leave
            keep=2 * looks,
        )

    @property
    def plan(self) -> dict[str, str]:
        """All hyperparameters, as text, those of the model as `shape.NAME`; with other ones it is another result."""
        return dict(_texts(self))

    def has_plan(self, stored: Mapping[str, str]) -> bool:
        """Return whether a stored plan is that of this arm; hyperparameters added since then had their defaults."""
        return {**dict(_texts(self, defaults=True)), **stored} == self.plan


class TrainedReplication(Replication):
    """Claims about training: arms of small models, trained with the same seeds.

    Must: as `Replication`; `arms`, `task`, `examine`, `has_learnt`.

    Claims with `needs="training"` are measured from the `runs` of the subject; others as in any replication.
    """

    arms: ClassVar[tuple[Arm, ...]]
    looks: ClassVar[int] = 1
    """How often each model is examined, at equal distances over its training, the last time when it is trained."""
    before_training: ClassVar[bool] = False
    """Whether each model is examined before its training as well."""

    @abstractmethod
    def task(self, arm: Arm) -> Task:
        """Return the training task of an arm; those that are compared differ only in what is claimed."""

    @abstractmethod
    def examine(self, model: nn.Module) -> Mapping[str, float]:
        """Return the numbers that are measured on a trained model; none depends on the seed of another."""

    @abstractmethod
    def has_learnt(self, run: TrainedRun) -> bool:
        """Return whether a model has learnt its task as far as it was trained on it: else nothing follows."""

    def learnt(self, runs: TrainedRuns) -> Control:
        """Return the control that every model has learnt its task."""
        return Control(
            name="share of the trained models that have learnt their task",
            expected=1.0,
            got=float(np.mean([self.has_learnt(run) for run in runs.runs])),
            tolerance=0.0,
        )


def _texts(options: Any, *, defaults: bool = False) -> Iterator[tuple[str, str]]:
    """Names and values of the fields of a dataclass, and of dataclasses in it; or of those with a default, that."""
    for field in fields(options):
        value = getattr(options, field.name)
        if is_dataclass(value):
            yield from ((f"{field.name}.{name}", text) for name, text in _texts(value, defaults=defaults))
        elif not defaults or field.default is not MISSING:
            yield field.name, str(field.default if defaults else value)
