"""The contract of a replication: the claims of one paper, measured again."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ordinate.core.finding import Estimate
from ordinate.core.progress import OnProgress, ignore
from ordinate.probing._adapter import ModelAdapter
from ordinate.probing._probe import ProbeData
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained_runs import TrainedRuns


@dataclass(frozen=True, eq=False)
class Subject:
    """What a replication measures besides what it constructs itself.

    Args:
        model: a checkpoint of the user; None: none.
        texts: texts for the model; None: none.
        seed: random seed.
        on_progress: progress callback, receives fractions.
        runs: what was measured on the trained models of the replication; None: none are trained.
    """

    model: ModelAdapter | None = None
    texts: ProbeData | None = None
    seed: int = 0
    on_progress: OnProgress = ignore
    runs: TrainedRuns | None = None


class Replication(ABC):
    """The claims of one paper, each with the criteria of its verdict declared beforehand.

    Must: `paper`, `order`, `claims`, `controls`, `measure`.
    """

    paper: ClassVar[Paper]
    order: ClassVar[int]
    """Place in lists, from 1, unique."""
    claims: ClassVar[tuple[Claim, ...]]

    @abstractmethod
    def controls(self, seed: int) -> Sequence[Control]:
        """Run the method on cases whose answers are known: a planted truth, and a positive control.

        If one is not recovered, no claim gets a verdict.
        """

    @abstractmethod
    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        """Measure each claim that applies; with its null and, unless it is exact, its 95 % interval.

        Claims that need a model, or trained models, are measured if there are any, the others always.

        Returns:
            Estimates by the name of their claim; without those that do not apply to the model.
        """
