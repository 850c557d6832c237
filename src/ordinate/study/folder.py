"""The folder of a study: what was planned, what was measured, and who is writing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordinate.files import read_sealed, write_sealed
from ordinate.lock import LOCK, OWNER, only_writer
from ordinate.study.about import cells_of, changed, others, place_of, planned, surroundings
from ordinate.study.fields import prepared
from ordinate.study.plan import FREE, Plan
from ordinate.study.run import Run, digest
from ordinate.study.state import FINAL, STATES, State

FORMAT = 2


class OtherStudyError(ValueError):
    """The folder holds a study with another plan, or something that is no study."""


@dataclass(frozen=True)
class Folder:
    """Paths in a study's folder.

    Args:
        path: the folder.
    """

    path: Path

    @property
    def study(self) -> Path:
        """What was planned, on which text and machine."""
        return self.path / "study.json"

    @property
    def data(self) -> Path:
        """The token files."""
        return self.path / "data"

    def prepared(self, plan: Plan, cell: dict[str, Any]) -> Path:
        """Where what this plan learns from is prepared; the cells of a grid that learn from the same share it."""
        return self.data / digest(prepared(dict(plan))) if cell else self.data

    @property
    def pace(self) -> Path:
        """How its runs share a machine."""
        return self.path / "pace.json"

    def threads(self) -> int | None:
        """Processor threads of each run: the plan's, or those settled on when it began; None: it has not."""
        if threads := self.plan().threads:
            return threads
        return read_sealed(self.pace)["threads"] if self.pace.exists() else None

    def run(self, run: Run) -> Path:
        """The folder of one run."""
        return self.path / "runs" / run.name

    def result(self, run: Run) -> Path:
        """What a run measured."""
        return self.run(run) / "result.json"

    def read(self) -> dict[str, Any]:
        """The contents of study.json."""
        return read_sealed(self.study)

    def plan(self) -> Plan:
        """The plan that is written there."""
        return Plan(**self.read()["plan"])

    def status(self, run: Run) -> State:
        """How the run ended; pending if it has not, or its result cannot be read."""
        try:
            found = read_sealed(self.result(run))["status"]
        except (OSError, ValueError, KeyError, TypeError):
            return "pending"
        return found if found in STATES else "pending"

    def missing(self, plan: Plan) -> list[Run]:
        """The runs that are still to do; one that failed, ran out of memory or was killed is tried again."""
        return [run for run in plan.runs() if self.status(run) not in FINAL]

    def end(self, run: Run, state: State, message: str) -> None:
        """Write down how a run ended that has measured nothing."""
        write_sealed(
            self.result(run),
            {"format": FORMAT, "run": run.about, "status": state, "step": 0, "message": message, "parameters": {}},
        )

    def check(self, plan: Plan) -> None:
        """Raise unless this plan may be carried out here.

        Raises:
            OtherStudyError: the folder holds other things, or a study whose plan differs (each difference is named).
        """
        if not self.path.exists() or not any(self.path.iterdir()):
            return
        if not self.study.exists():
            # the token files are written before study.json is
            if {item.name for item in self.path.iterdir()} <= {"data", LOCK, OWNER}:
                return
            raise OtherStudyError(
                f"a study needs an empty folder or its own; {self.path} holds other files; give another --out"
            )
        try:
            # fields that came later have their defaults
            old = self.plan().model_copy(update={"threads": self.threads()})
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise OtherStudyError(
                f"study.json must hold a plan; {self.study} cannot be read ({error}); give another --out"
            ) from None
        # threads that are left open are those it began with
        _refuse(self.path, changed(old, plan.model_copy(update={"threads": plan.threads or old.threads})))

    def open(self, plan: Plan, source: dict[str, Any], command: str, *more: dict[str, Any]) -> None:
        """Write study.json, or make sure that the one there is of the same plan, models, and text or task.

        More seeds, schemes or mixers may be asked for, and a grid may have other cells: what is done of it stays.

        Args:
            plan: the study's.
            source: what decides the results of its runs: the text or the task; of a grid, of those in its first cell.
            command: how it was asked for.
            more: the same of the other cells.
        """
        cells = [
            {**planned(part, values), **learned}
            for (part, values), learned in zip(plan.parts(), (source, *more), strict=True)
        ]
        about = {
            "format": FORMAT,
            "plan": plan.model_dump(mode="json"),
            **({"cells": cells} if plan.cells else {"compared": cells[0]["compared"], **source}),
            "command": command,
            **surroundings(),
        }
        if self.study.exists():
            old, parts = self.read(), plan.parts()
            was = self.plan()
            plan = plan.model_copy(update={name: getattr(was, name) for name in FREE} | {"threads": was.threads})
            known = {
                place_of(part, values): one for (part, values), one in zip(was.parts(), cells_of(old), strict=True)
            }
            lines = []
            for (part, values), new in zip(parts, cells, strict=True):
                lines += others(known.get(place_of(part, values), new), new)
            _refuse(self.path, list(dict.fromkeys(lines)))
            if was == plan:
                return
            about["plan"] = plan.model_dump(mode="json")
        write_sealed(self.study, about)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only one who writes here.

        Raises:
            OccupiedError: somebody else does.
        """
        with only_writer(self.path):
            yield


def _refuse(path: Path, lines: list[str]) -> None:
    if lines:
        listed = "\n  ".join(lines)
        raise OtherStudyError(
            f"a study goes on with the plan it began with; {path} was begun with another:\n  {listed}\n"
            "give the same options as then, or another --out"
        )
