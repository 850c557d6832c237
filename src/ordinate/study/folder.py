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
from ordinate.study.plan import FREE, Plan, Run, differences
from ordinate.study.state import FINAL, STATES, State

FORMAT = 2
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

    @property
    def pace(self) -> Path:
        """How its runs share a machine."""
        return self.path / "pace.json"

    def threads(self) -> int | None:
        """Processor threads of each run: the plan's, or those settled on when it began; None: it has not."""
        if threads := self.plan().threads:
            return threads
        return json.loads(self.pace.read_text(encoding="utf-8"))["threads"] if self.pace.exists() else None

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
            old = self.plan().model_dump(mode="json") | {"threads": self.threads()}
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise OtherStudyError(
                f"study.json must hold a plan; {self.study} cannot be read ({error}); give another --out"
            ) from None
        # threads that are left open are those it began with
        new = plan.model_dump(mode="json") | {"threads": plan.threads or old["threads"]}
        _refuse(self.path, differences(_fixed(old), _fixed(new)))

    def open(self, plan: Plan, source: dict[str, Any], command: str) -> None:
        """Write study.json, or make sure that the one there is of the same plan, models, and text or task."""
        compared = [dict(zip(("label", "scheme", "mixer"), one, strict=True)) for one in plan.compared()]
        if self.study.exists():
            old = self.read()
            lines = [f"{kind}.{line}" for kind, new in source.items() for line in differences(old[kind], new)]
            was = {one["label"]: one for one in old.get("compared", compared)}
            lines += [f"{one['label']}.{line}" for one in compared for line in differences(was[one["label"]], one)]
            _refuse(self.path, lines)
            return
        write_json(
            self.study,
            {
                "format": FORMAT,
                "plan": plan.model_dump(mode="json"),
                "compared": compared,
                **source,
                "machine": machine(),
                "versions": {"ordinate": __version__, **{name: version(name) for name in LIBRARIES}},
                "command": command,
                "code": code_digest(),
            },
        )

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


def _fixed(plan: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plan.items() if key not in FREE}


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
