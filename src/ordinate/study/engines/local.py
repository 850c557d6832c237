"""The runs of a study on this machine."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ordinate.checks import need
from ordinate.study.engine import PATIENCE, Engine, Watch
from ordinate.study.folder import Folder
from ordinate.study.fork_server import fork_server
from ordinate.study.pace import WORTH, Pace, cores, measured
from ordinate.study.plan import Plan, Run
from ordinate.study.process import Crew, attempt, terminable, variables


@dataclass(frozen=True)
class Local(Engine):
    """Some runs at a time on this machine.

    Args:
        workers: so many at a time; None: as many as there are cores for, of as many threads each as trials show to be
            fastest.
        patience: a run that says nothing for so long is ended [seconds].
        tell: is told what trials showed.
    """

    workers: int | None = None
    patience: float = PATIENCE
    tell: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        for name, what in (
            ("workers", "how many runs to do at a time"),
            ("patience", "how long a run may be silent"),
        ):
            value = getattr(self, name)
            need(value is None or value > 0, f"{name} must be above zero", f"got {value}", f"give {what}")

    def pace(self, folder: Folder, plan: Plan, runs: list[Run]) -> Pace:
        """What is fastest, measured where nothing was said and the study is long enough for that to pay."""
        if self.workers or plan.threads or cores() == 1 or plan.steps * len(runs) < WORTH:
            return Pace(plan.threads or 1)
        found = measured(folder, runs, cores())
        self.tell(str(found))
        return found

    def carry_out(self, folder: Folder, plan: Plan, runs: list[Run], watch: Watch) -> None:
        """Do these runs; returns when each has a result."""
        if not runs:
            return
        workers = self.workers or max(1, cores() // (folder.threads() or 1))
        with terminable(), fork_server(variables(folder)) as forks, ThreadPoolExecutor(max_workers=workers) as pool:
            crew = Crew(forks)
            futures = [pool.submit(attempt, folder, plan, run, watch, crew, self.patience) for run in runs]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                crew.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
