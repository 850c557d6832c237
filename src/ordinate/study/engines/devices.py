"""The runs of a study, each on several devices of this machine."""

import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ordinate.study.capacity import capacity, seat
from ordinate.study.engine import PATIENCE, Engine, Watch
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan, Run
from ordinate.study.process import Crew, attempt, terminable
from ordinate.training.settings import Hardware


@dataclass(frozen=True)
class Devices(Engine):
    """Some runs at a time on this machine, each with devices of its own.

    Args:
        hardware: the devices of a run.
        workers: so many runs at a time; None: as many as there are devices for.
        patience: a run that says nothing for so long is ended [seconds].
    """

    hardware: Hardware
    workers: int | None = None
    patience: float = PATIENCE

    def carry_out(self, folder: Folder, plan: Plan, runs: list[Run], watch: Watch) -> None:
        """Do these runs; returns when each has a result."""
        workers = self.workers or max(1, capacity(self.hardware, folder.threads() or 1))
        crew, seats = Crew(), queue.SimpleQueue[int]()
        for number in range(workers):
            seats.put(number)

        def one(run: Run) -> None:
            number = seats.get()
            try:
                environment = seat(self.hardware, number)
                attempt(folder, plan, run, watch, crew, self.patience, self.hardware, environment)
            finally:
                seats.put(number)

        with ThreadPoolExecutor(max_workers=workers) as pool, terminable():
            futures = [pool.submit(one, run) for run in runs]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                crew.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
