"""The runs of a study on this machine."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ordinate.checks import need
from ordinate.study.engine import PATIENCE, Engine, Watch
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan, Run
from ordinate.study.process import Crew, attempt, terminable


@dataclass(frozen=True)
class Local(Engine):
    """Some runs at a time on this machine.

    Args:
        workers: so many at a time.
        patience: a run that says nothing for so long is ended [seconds].
    """

    workers: int
    patience: float = PATIENCE

    def __post_init__(self) -> None:
        for name, what in (
            ("workers", "how many runs to do at a time"),
            ("patience", "how long a run may be silent"),
        ):
            value = getattr(self, name)
            need(value > 0, f"{name} must be above zero", f"got {value}", f"give {what}")

    def carry_out(self, folder: Folder, plan: Plan, runs: list[Run], watch: Watch) -> None:
        """Do these runs; returns when each has a result."""
        crew = Crew()
        with ThreadPoolExecutor(max_workers=self.workers) as pool, terminable():
            futures = [pool.submit(attempt, folder, plan, run, watch, crew, self.patience) for run in runs]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                crew.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
