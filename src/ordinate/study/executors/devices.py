"""Executor for this machine with several devices per run (data-parallel or sharded training)."""

import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ordinate.core.interruption import sigterm_as_interrupt
from ordinate.core.progress import OnProgress
from ordinate.study.device_allocation import gpu_environment, max_parallel_runs
from ordinate.study.executor import STALL_TIMEOUT, Executor
from ordinate.study.plan import Plan, Run
from ordinate.study.study_folder import StudyFolder
from ordinate.study.worker_process import WorkerPool, run_in_subprocess
from ordinate.training.settings import Hardware


@dataclass(frozen=True)
class MultiDeviceExecutor(Executor):
    """Runs several trainings in parallel on this machine, each on its own devices.

    Args:
        hardware: devices of each run.
        workers: runs at a time; None: as many as the machine's devices allow.
        stall_timeout: stall timeout: a run without output for this long is killed [seconds].
    """

    hardware: Hardware
    workers: int | None = None
    stall_timeout: float = STALL_TIMEOUT

    def run_all(self, folder: StudyFolder, plan: Plan, runs: list[Run], on_progress: OnProgress) -> None:
        """Carry out these runs; a queue of slots assigns free devices."""
        workers = self.workers or max(1, max_parallel_runs(self.hardware, folder.threads() or 1))
        pool, seats = WorkerPool(), queue.SimpleQueue[int]()
        for number in range(workers):
            seats.put(number)

        def one(run: Run) -> None:
            number = seats.get()
            try:
                environment = gpu_environment(self.hardware, number)
                run_in_subprocess(
                    folder, plan, run, on_progress, pool, self.stall_timeout, self.hardware, environment
                )
            finally:
                seats.put(number)

        with ThreadPoolExecutor(max_workers=workers) as submitter, sigterm_as_interrupt():
            futures = [submitter.submit(one, run) for run in runs]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.stop()
                submitter.shutdown(wait=True, cancel_futures=True)
                raise
