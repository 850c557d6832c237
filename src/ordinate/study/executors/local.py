"""Executor for this machine: a pool of worker processes, one device each."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ordinate.core.checks import need
from ordinate.core.interruption import sigterm_as_interrupt
from ordinate.core.progress import OnProgress, Progress
from ordinate.study.executor import STALL_TIMEOUT, Executor
from ordinate.study.fork_server import fork_server
from ordinate.study.plan import Plan, Run
from ordinate.study.study_folder import StudyFolder
from ordinate.study.thread_autotuning import MIN_STEPS_TO_TUNE, ThreadChoice, available_cores, measure_threads
from ordinate.study.worker_process import WorkerPool, run_in_subprocess, worker_environment


@dataclass(frozen=True)
class LocalExecutor(Executor):
    """Runs several worker processes in parallel on this machine.

    Args:
        workers: worker processes at a time; None: as many as there are cores for, with the fastest measured number
            of threads each.
        stall_timeout: stall timeout: a run without output for this long is killed [seconds].
    """

    workers: int | None = None
    stall_timeout: float = STALL_TIMEOUT

    def __post_init__(self) -> None:
        for name, value, what in (
            ("workers", self.workers, "the number of parallel runs"),
            ("the stall timeout", self.stall_timeout, "the longest time without output"),
        ):
            need(value is None or value > 0, f"{name} must be above zero", f"got {value}", f"give {what}")

    def choose_threads(
        self, folder: StudyFolder, plan: Plan, runs: list[Run], on_progress: OnProgress
    ) -> ThreadChoice:
        """Measure the fastest number of threads, if none is given and the study is long enough to gain from it."""
        if self.workers or plan.threads or available_cores() == 1 or plan.steps * len(runs) < MIN_STEPS_TO_TUNE:
            return ThreadChoice(plan.threads or 1)
        found = measure_threads(folder, runs, available_cores())
        on_progress(Progress(message=str(found)))
        return found

    def run_all(self, folder: StudyFolder, plan: Plan, runs: list[Run], on_progress: OnProgress) -> None:
        """Carry out these runs in a pool of worker processes."""
        if not runs:
            return
        workers = self.workers or max(1, available_cores() // (folder.threads() or 1))
        with (
            sigterm_as_interrupt(),
            fork_server(worker_environment(folder)) as forks,
            ThreadPoolExecutor(max_workers=workers) as submitter,
        ):
            pool = WorkerPool(forks)
            futures = [
                submitter.submit(run_in_subprocess, folder, plan, run, on_progress, pool, self.stall_timeout)
                for run in runs
            ]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.stop()
                submitter.shutdown(wait=True, cancel_futures=True)
                raise
