"""The folder of a study: what was planned, what was measured, and who is writing."""

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ordinate import __version__
from ordinate.files import write_json
from ordinate.lock import LOCK, OWNER, only_writer
from ordinate.study.fields import prepared
from ordinate.study.plan import FREE, LISTED, Plan, differences
from ordinate.study.run import Run, digest
from ordinate.study.state import FINAL, STATES, State

FORMAT = 2
# what study.json says of a cell beside what is learned in it
PLANNED = ("values", "compared", "plan", "runs")
LIBRARIES = ("torch", "numpy", "pytorch-lightning", "safetensors", "tokenizers", "altair")


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

    def run(self, run: Run) -> Path:
        """The folder of one run."""
        return self.path / "runs" / run.name

    def result(self, run: Run) -> Path:
        """What a run measured."""
        return self.run(run) / "result.json"

    def read(self) -> dict[str, Any]:
        """The contents of study.json."""
        return json.loads(self.study.read_text(encoding="utf-8"))

    def plan(self) -> Plan:
        """The plan that is written there."""
        return Plan(**self.read()["plan"])

    def status(self, run: Run) -> State:
        """How the run ended; pending if it has not, or its result cannot be read."""
        try:
            found = json.loads(self.result(run).read_text(encoding="utf-8"))["status"]
        except (OSError, ValueError, KeyError, TypeError):
            return "pending"
        return found if found in STATES else "pending"

    def missing(self, plan: Plan) -> list[Run]:
        """The runs that are still to do; one that failed, ran out of memory or was killed is tried again."""
        return [run for run in plan.runs() if self.status(run) not in FINAL]

    def end(self, run: Run, state: State, message: str) -> None:
        """Write down how a run ended that has measured nothing."""
        write_json(
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
            old = self.plan()
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise OtherStudyError(
                f"study.json must hold a plan; {self.study} cannot be read ({error}); give another --out"
            ) from None
        _refuse(self.path, _changed(old, plan))

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
            {**_planned(part, values), **learned}
            for (part, values), learned in zip(plan.parts(), (source, *more), strict=True)
        ]
        about = {
            "format": FORMAT,
            "plan": plan.model_dump(mode="json"),
            **({"cells": cells} if plan.cells else {"compared": cells[0]["compared"], **source}),
            "machine": machine(),
            "versions": {"ordinate": __version__, **{name: version(name) for name in LIBRARIES}},
            "command": command,
            "code": code_digest(),
        }
        if self.study.exists():
            old, parts = self.read(), plan.parts()
            was = self.plan()
            known = {_place(part, values): one for (part, values), one in zip(was.parts(), _cells(old), strict=True)}
            lines = []
            for (part, values), new in zip(parts, cells, strict=True):
                lines += _others(known.get(_place(part, values), new), new)
            _refuse(self.path, list(dict.fromkeys(lines)))
            if was.model_copy(update={name: getattr(plan, name) for name in FREE}) == plan:
                return
        write_json(self.study, about)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only one who writes here.

        Raises:
            OccupiedError: somebody else does.
        """
        with only_writer(self.path):
            yield


def machine() -> dict[str, Any]:
    """What this machine is."""
    return {
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": _memory(),
        "python": platform.python_version(),
    }


def code_digest() -> str:
    """A hash of the package's source."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _changed(old: Plan, new: Plan) -> list[str]:
    """What must not differ between two plans of one folder, and does: "key: old -> new"."""
    if old.cells and new.cells:
        # the name of a run in a grid says everything that it is
        return []
    if old.cells or new.cells:
        said = [f"{len(plan.cells)} cells" if plan.cells else "no grid" for plan in (old, new)]
        return [f"grid: {said[0]} -> {said[1]}"]
    first, second = (plan.model_dump(mode="json", exclude=set(FREE)) for plan in (old, new))
    for name in LISTED:
        if (first[name] is None) == (second[name] is None):
            del first[name], second[name]
    steps = [f"steps of {label}" for label in (old.budgets or {}) if label in (new.budgets or {})]
    for said, budgets in ((first, old.budgets), (second, new.budgets)):
        said.update({name: (budgets or {})[name.removeprefix("steps of ")] for name in steps})
    return differences(first, second)


def _planned(plan: Plan, values: dict[str, Any]) -> dict[str, Any]:
    """What study.json says of a cell, so that a report need load no scheme."""
    lines = [dict(zip(("label", "scheme", "mixer"), one, strict=True)) for one in plan.compared()]
    trials, runs = plan.own_trials(values), [run for seed in range(plan.seeds) for run in plan.own_runs(values, seed)]
    return {
        "values": values,
        "compared": lines,
        "plan": plan.model_dump(mode="json"),
        "runs": [{"name": run.name, "title": run.title} for run in [*trials, *runs]],
    }


def _cells(about: dict[str, Any]) -> list[dict[str, Any]]:
    """What study.json says of each cell; of a study without a grid, of itself."""
    return about.get("cells") or [about]


def _place(plan: Plan, values: dict[str, Any]) -> str:
    """What learns from the same."""
    return digest([prepared(dict(plan)), plan.task]) if values else ""


def _others(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What models are, and what they learn from, that has changed since."""
    sources = [kind for kind in new if kind not in PLANNED]
    lines = [f"{kind}.{line}" for kind in sources for line in differences(old[kind], new[kind])]
    was = {one["label"]: one for one in old.get("compared", new["compared"])}
    return lines + [
        f"{one['label']}.{line}" for one in new["compared"] for line in differences(was.get(one["label"], one), one)
    ]


def _refuse(path: Path, lines: list[str]) -> None:
    if lines:
        listed = "\n  ".join(lines)
        raise OtherStudyError(
            f"a study goes on with the plan it began with; {path} was begun with another:\n  {listed}\n"
            "give the same options as then, or another --out"
        )


def _processor() -> str:
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
