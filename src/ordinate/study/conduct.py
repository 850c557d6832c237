"""A study from its plan to its runs: check everything, read the data, do what is missing."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from ordinate.files import write_sealed
from ordinate.study.engine import Engine, News
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan


@runtime_checkable
class Watcher(Protocol):
    """Somebody who wants to know how far a study is."""

    def reading(self, what: str) -> None:
        """Something is being read, before any run begins."""

    def planned(self, plan: Plan, todo: int) -> None:
        """So many runs are to do."""

    def news(self, news: News) -> None:
        """A run has got further."""


def conduct(plan: Plan, out: Path, engine: Engine, command: str, watcher: Watcher) -> Folder:
    """Carry out what is missing of a settled plan in the folder `out`.

    Args:
        plan: what to do, settled.
        out: the study's folder; new, empty, or of the same plan.
        engine: where the runs are carried out.
        command: how the study was asked for, kept for the report.
        watcher: is told how far it is.

    Raises:
        OtherStudyError: the folder holds another study.
        OccupiedError: somebody is at work in the folder.
        ValueError: what is to be learned from is empty, unreadable, or too little.
    """
    from ordinate.study.source import source_of

    folder = Folder(out)
    folder.check(plan)
    with folder.lock():
        folder.check(plan)
        sources, ready = [], set()
        for part, values in plan.parts():
            place = folder.prepared(part, values)
            source = source_of(part)(part, place)
            # what several cells read is told once
            source.prepare((lambda what: None) if place in ready else watcher.reading)
            ready.add(place)
            sources.append(source.identity)
        folder.open(plan, sources[0], command, *sources[1:])
        todo = folder.missing(plan)
        if todo and not folder.pace.exists():
            write_sealed(folder.pace, engine.pace(folder, plan, todo).about)
        watcher.planned(plan, len(todo))
        missing = {run.name for run in todo}
        for stage in plan.stages():
            engine.carry_out(folder, plan, [run for run in stage if run.name in missing], watcher.news)
    return folder
