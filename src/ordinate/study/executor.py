"""The executor contract: starts the runs of a study, locally or on other machines."""

from abc import ABC, abstractmethod

from ordinate.core.progress import OnProgress
from ordinate.study.plan import Plan, Run
from ordinate.study.study_folder import StudyFolder
from ordinate.study.thread_autotuning import ThreadChoice

# stall timeout: a run without output for this long is killed [seconds]
STALL_TIMEOUT = 3600.0


class Executor(ABC):
    """Carries out runs, each in a worker process. The files in the study's folder are the only state: an executor
    just starts processes, and restarts them.

    Must: `run_all`. May: `choose_threads`; `join_as_follower` and `release_followers`, where several machines run the
    same command.
    """

    def choose_threads(
        self, folder: StudyFolder, plan: Plan, runs: list[Run], on_progress: OnProgress
    ) -> ThreadChoice:
        """Choose the threads of each run, once per study; by default the plan's, or one.

        Args:
            folder: the study's folder, with its data prepared.
            plan: the study's plan.
            runs: the runs to do.
            on_progress: receives a message about the measured speeds, if any are measured.
        """
        return ThreadChoice(plan.threads or 1)

    @abstractmethod
    def run_all(self, folder: StudyFolder, plan: Plan, runs: list[Run], on_progress: OnProgress) -> None:
        """Carry out these runs; return when each has a result.

        A failed run is recorded with the end of its error output, and the others continue. When the study is
        interrupted, every run is asked to stop, and saves a checkpoint before it exits.

        Args:
            folder: the study's folder.
            plan: the study's plan.
            runs: the runs to do.
            on_progress: receives the progress of each run: its name as item, its stage (waiting, training, measuring,
                or its final state), optimiser steps done and in all, its loss, and as message why it failed.
        """

    def join_as_follower(self, folder: StudyFolder) -> bool:
        """Join a study led by another machine and return True when it is over; return False if this machine leads."""
        return False

    def release_followers(self) -> None:  # noqa: B027  (single-machine executors have nothing to do)
        """Notify the other machines, if any, that the study is over."""
