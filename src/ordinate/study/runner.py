"""Run a study: check the plan, prepare the data, carry out the runs that have no result yet."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from ordinate.core.atomic_files import write_checksummed
from ordinate.study.executor import Executor, RunUpdate
from ordinate.study.loggers import StudyLogger
from ordinate.study.plan import Plan
from ordinate.study.remote_sync import RemoteCopy
from ordinate.study.study_folder import StudyFolder


@runtime_checkable
class StudyObserver(Protocol):
    """Receives progress events of a study."""

    def on_reading(self, what: str) -> None:
        """Data is about to be read, before any run starts."""

    def on_planned(self, plan: Plan, todo: int) -> None:
        """The plan is final; `todo` of its runs remain to be done."""

    def on_update(self, update: RunUpdate) -> None:
        """A run has progressed or changed its stage."""


class ObserverChain:
    """Passes progress events on to the console, after the remote copy and the logger have handled them.

    Args:
        observer: shows progress to the user.
        mirror: remote copy of the study; None for none.
        logs: experiment loggers of the runs; None for none.
    """

    def __init__(
        self, observer: StudyObserver, mirror: RemoteCopy | None = None, logs: StudyLogger | None = None
    ) -> None:
        self.observer, self.mirror, self.logs = observer, mirror, logs

    def on_reading(self, what: str) -> None:
        """Pass the event on to the console."""
        self.observer.on_reading(what)

    def on_planned(self, plan: Plan, todo: int) -> None:
        """Upload everything that runs need, before the first of them starts."""
        self.every = plan.checkpoint_every
        if self.mirror:
            self.mirror.push()
        self.observer.on_planned(plan, todo)

    def on_update(self, update: RunUpdate) -> None:
        """Upload and log what the run has written, then show it."""
        if self.mirror:
            self.mirror.on_update(update, self.every)
        if self.logs:
            self.logs.on_update(update)
        self.observer.on_update(update)


def run_study(plan: Plan, out: Path, executor: Executor, command: str, observer: StudyObserver) -> StudyFolder:
    """Carry out the runs of a resolved plan that have no final result yet, in the folder `out`.

    Args:
        plan: the resolved plan.
        out: the study's folder; new, empty, or of the same plan.
        executor: the executor of the runs.
        command: command line of the study, recorded for the report.
        observer: receives progress events.

    Raises:
        OtherStudyError: the folder holds another study.
        FolderLockedError: another process is working in the folder.
        ValueError: the training data is empty, unreadable, or too small.
    """
    from ordinate.study.data_source import source_of

    folder = StudyFolder(out)
    folder.check(plan)
    with folder.lock():
        folder.check(plan)
        # repeated under the lock: another process may have written the folder since the first check
        sources, ready = [], set()
        for part, values in plan.cell_plans():
            data = folder.data_of(part, values)
            source = source_of(part)(part, data)
            # cells that share a data folder announce its preparation once
            source.prepare((lambda what: None) if data in ready else observer.on_reading)
            ready.add(data)
            sources.append(source.identity)
        folder.open(plan, sources[0], command, *sources[1:])
        todo = folder.missing(plan)
        if todo and not folder.threads_file.exists():
            write_checksummed(folder.threads_file, executor.choose_threads(folder, plan, todo).as_record)
        observer.on_planned(plan, len(todo))
        missing = {run.name for run in todo}
        for stage in plan.stages():
            executor.run_all(folder, plan, [run for run in stage if run.name in missing], observer.on_update)
    return folder
