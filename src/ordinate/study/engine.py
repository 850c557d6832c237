"""Where the runs of a study are carried out: the contract."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from ordinate.study.folder import Folder
from ordinate.study.pace import Pace
from ordinate.study.plan import Plan, Run

# a run that says nothing for so long hangs [seconds]
PATIENCE = 3600.0


@dataclass(frozen=True)
class News:
    """How far a run is.

    Args:
        run: which one.
        stage: waiting, training, measuring, or how it ended.
        step: optimiser steps done.
        loss: training loss [nats a token]; None before the first step.
        message: why it failed.
    """

    run: Run
    stage: str
    step: int = 0
    loss: float | None = None
    message: str = ""


Watch = Callable[[News], None]


class Engine(ABC):
    """Carries out runs, each in a process of its own. What is true stands in the files of the study's folder: engines
    only start processes, and start them again.

    Must: `carry_out`. May: `pace`; `follow` and `dismiss`, where several machines run one command.
    """

    def pace(self, folder: Folder, plan: Plan, runs: list[Run]) -> Pace:
        """How many threads each run has, decided once for a study: the plan's, or one.

        Args:
            folder: of the study, its data prepared.
            plan: what decides the results.
            runs: those to do.
        """
        return Pace(plan.threads or 1)

    @abstractmethod
    def carry_out(self, folder: Folder, plan: Plan, runs: list[Run], watch: Watch) -> None:
        """Do these runs; returns when each has a result.

        A run that fails is recorded, with the end of what it said, and the others go on. When the study is
        interrupted the runs are told to stop, and each saves a checkpoint before it ends.

        Args:
            folder: of the study.
            plan: what decides the results.
            runs: which of its runs.
            watch: is told how far each is.
        """

    def follow(self, folder: Folder) -> bool:
        """Take part in what another machine conducts, until that is over; False: it is this one that conducts."""
        return False

    def dismiss(self) -> None:  # noqa: B027  (most engines have nobody to tell)
        """Tell other machines, where there are some, that all is over."""
