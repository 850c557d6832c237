"""The executor contract: starts the runs of a study, locally or on other machines."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from ordinate.study.plan import Plan, Run
from ordinate.study.study_folder import StudyFolder
from ordinate.study.thread_autotuning import ThreadChoice

# stall timeout: a run without output for this long is killed [seconds]
STALL_TIMEOUT = 3600.0


@dataclass(frozen=True)
class RunUpdate:
    """A progress event of one run.

    Args:
        run: the run.
        stage: waiting, training, measuring, or its final state.
        step: optimiser steps done.
        loss: training loss [nats per token]; None before the first step.
        message: the error message of a run that failed.
    """

    run: Run
    stage: str
    step: int = 0
    loss: float | None = None
    message: str = ""


OnUpdate = Callable[[RunUpdate], None]


class Executor(ABC):
    """Carries out runs, each in a worker process. The files in the study's folder are the only state: an executor
    just starts processes, and restarts them.

    Must: `run_all`. May: `choose_threads`; `join_as_follower` and `release_followers`, where several machines run the
    same command.
    """

    def choose_threads(self, folder: StudyFolder, plan: Plan, runs: list[Run]) -> ThreadChoice:
        """Choose the threads of each run, once per study; by default the plan's, or one.

        Args:
            folder: the study's folder, with its data prepared.
            plan: the study's plan.
            runs: the runs to do.
        """
        return ThreadChoice(plan.threads or 1)

    @abstractmethod
    def run_all(self, folder: StudyFolder, plan: Plan, runs: list[Run], on_update: OnUpdate) -> None:
        """Carry out these runs; return when each has a result.

        A failed run is recorded with the end of its error output, and the others continue. When the study is
        interrupted, every run is asked to stop, and saves a checkpoint before it exits.

        Args:
            folder: the study's folder.
            plan: the study's plan.
            runs: the runs to do.
            on_update: receives progress events.
        """

    def join_as_follower(self, folder: StudyFolder) -> bool:
        """Join a study led by another machine and return True when it is over; return False if this machine leads."""
        return False

    def release_followers(self) -> None:  # noqa: B027  (single-machine executors have nothing to do)
        """Notify the other machines, if any, that the study is over."""
