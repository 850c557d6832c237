"""What was measured on the trained models of a replication; serialisable, no tensors."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field

from ordinate.core.finding import Record

SEEDS = 6
"""Seeds of each arm. Of 6 of 6 seeds with the same sign p is .03; of 5 of 5 it is .06."""


class TrainedRun(Record):
    """What was measured on one trained model."""

    arm: str
    seed: int
    numbers: dict[str, float]
    """Measured numbers by name."""
    before: dict[int, dict[str, float]] = Field(default_factory=dict)
    """The same numbers by step, 0: before training, without those of the last step; empty: not measured."""
    seconds: float
    """Training time [s]."""


class TrainedRuns(Record):
    """What was measured on the trained models of a replication."""

    plan: dict[str, dict[str, str]]
    """Hyperparameters of each arm."""
    processor: str
    """The processor on which the models were trained."""
    runs: tuple[TrainedRun, ...] = ()

    def numbers(self, arm: str, name: str) -> Float[ndarray, "seeds"]:
        """Return a number for each seed, in the order of the seeds: two arms are paired by place."""
        found = sorted((run for run in self.runs if run.arm == arm), key=lambda run: run.seed)
        return np.array([run.numbers[name] for run in found])

    def curve(self, arm: str, name: str) -> Float[ndarray, "seeds looks"]:
        """Return a number for each seed at each step at which models were examined, the last one trained."""
        found = sorted((run for run in self.runs if run.arm == arm), key=lambda run: run.seed)
        return np.array(
            [[*(run.before[step][name] for step in sorted(run.before)), run.numbers[name]] for run in found]
        )

    @property
    def complete(self) -> bool:
        """Whether each arm has all its seeds."""
        return all(sum(run.arm == arm for run in self.runs) >= SEEDS for arm in self.plan)

    @property
    def seconds(self) -> float:
        """Training time of all models [s]."""
        return sum(run.seconds for run in self.runs)
