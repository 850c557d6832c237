"""A study's folder: paths of its files, state of its runs, and the lock that admits one writer at a time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordinate.core.atomic_files import read_checksummed, unfinished_files, write_checksummed
from ordinate.core.class_reference import need_allowed
from ordinate.core.folder_lock import LOCK, OWNER, exclusive_lock
from ordinate.data.dataset_folder import beside
from ordinate.study.manifest import (
    cells_of,
    data_differences,
    data_key,
    describe_cell_plan,
    environment,
    plan_differences,
    provenance,
    provenance_differences,
)
from ordinate.study.options import data_fields
from ordinate.study.plan import RESUMABLE_FIELDS, Plan
from ordinate.study.result_file import FORMAT_VERSION, RESULT_ERRORS, read_result
from ordinate.study.run import FINAL_STATES, Run, State, digest


class OtherStudyError(ValueError):
    """The folder holds a study with another plan, or files of something else."""


@dataclass(frozen=True)
class StudyFolder:
    """File layout of a study's folder.

    Args:
        path: the folder.
    """

    path: Path

    @property
    def study(self) -> Path:
        """Plan, data identity, machine and versions of the study."""
        return self.path / "study.json"

    @property
    def data(self) -> Path:
        """Folder of the prepared (tokenised) training data."""
        return self.path / "data"

    def data_of(self, plan: Plan, cell: dict[str, Any]) -> Path:
        """Data folder of a cell; grid cells that train on the same data share one."""
        return self.data / digest(data_fields(dict(plan))) if cell else self.data

    @property
    def threads_file(self) -> Path:
        """Measured speeds of thread counts, and the one chosen."""
        return self.path / "pace.json"

    def threads(self) -> int | None:
        """Processor threads of each run: the plan's, or the number chosen at the first start; None before that."""
        if threads := self.plan().threads:
            return threads
        return read_checksummed(self.threads_file)["threads"] if self.threads_file.exists() else None

    def run(self, run: Run | str) -> Path:
        """Folder of one run, given itself or by name."""
        return self.path / "runs" / (run if isinstance(run, str) else run.name)

    def result(self, run: Run | str) -> Path:
        """Result file of one run, given itself or by name."""
        return self.run(run) / "result.json"

    def read(self) -> dict[str, Any]:
        """Return the contents of study.json."""
        return read_checksummed(self.study)

    def plan(self) -> Plan:
        """Return the plan stored in study.json."""
        plan = Plan.stored(self.read()["plan"])
        # which schemes there are then depends on the classes of the mixers
        need_allowed(str(self.study), (plan.mixers or ()) if plan.schemes is None else ())
        return plan

    def trusted_plan(self) -> Plan:
        """Return the plan stored in study.json, to build its models.

        Raises:
            ValueError: a class outside of Ordinate that is neither imported nor allowed: see `need_allowed`.
        """
        plan = self.plan()
        need_allowed(str(self.study), plan.specifications)
        return plan

    def status(self, run: Run) -> State:
        """Final state of a run; `pending` if it has no result, or a damaged one."""
        try:
            return read_result(self.result(run))["status"]
        except RESULT_ERRORS:
            return "pending"

    def damaged(self, runs: Iterable[Run]) -> list[str]:
        """Describe what is wrong with each damaged result of these runs."""
        found = []
        for run in runs:
            try:
                read_result(self.result(run))
            except FileNotFoundError:
                continue
            except RESULT_ERRORS as error:
                found.append(f"{run.name}: {error}")
        return found

    def missing(self, plan: Plan) -> list[Run]:
        """Return the runs still to do; those that failed, ran out of memory or were killed are tried again."""
        return [run for run in plan.runs() if self.status(run) not in FINAL_STATES]

    def with_leaders(self, plan: Plan) -> Plan:
        """Return a plan with the leading arms that were chosen in this folder before, if it has further seeds."""
        if not (plan.leader_seeds and self.study.exists()):
            return plan
        arms = {label for label, _, _ in plan.arms()}
        return plan.model_copy(update={"leaders": tuple(label for label in self.plan().leaders if label in arms)})

    def write_leaders(self, plan: Plan) -> None:
        """Write the leading arms of a plan to study.json, so that workers and reports know their runs."""
        about = self.read()
        write_checksummed(self.study, {**about, "plan": {**about["plan"], "leaders": list(plan.leaders)}})

    def record_end(self, run: Run, state: State, message: str) -> None:
        """Write the result of a run that ended without being evaluated."""
        write_checksummed(
            self.result(run),
            {
                "format": FORMAT_VERSION,
                "run": run.as_record,
                "status": state,
                "step": 0,
                "message": message,
                "parameters": {},
            },
        )

    def resumed(self, plan: Plan) -> Plan:
        """Return the plan as this folder's study resumes it: what it leaves open is as the study was started.

        So a study of an earlier version keeps its token embeddings. The plan must still be checked.
        """
        try:
            return plan.left_open_as(self.plan())
        except (ValueError, KeyError, TypeError, OSError):
            # no study yet, or one that `check` refuses
            return plan

    def check(self, plan: Plan) -> None:
        """Check that a plan may be carried out in this folder.

        Raises:
            OtherStudyError: the folder holds other files, or a study with another plan (each difference is listed).
        """
        if not self.path.exists() or not any(self.path.iterdir()):
            return
        if not self.study.exists():
            # an interrupted start leaves data only: study.json is written after it
            if {item.name for item in self.path.iterdir()} <= {
                "data",
                LOCK,
                OWNER,
                *(path.name for path in unfinished_files(self.path)),
                *(path.name for path in beside(self.data)),
            }:
                return
            raise OtherStudyError(
                f"a study needs a new or empty folder, or its own; {self.path} holds other files; give another --out"
            )
        try:
            # fields added in later versions take the values that earlier ones stand for
            old = self.plan().model_copy(update={"threads": self.threads()})
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise OtherStudyError(
                f"study.json must contain a valid plan; {self.study} cannot be read ({error}); give another --out"
            ) from None
        # without --threads a resumed study keeps the number of threads chosen at its start
        _refuse(self.path, plan_differences(old, plan.model_copy(update={"threads": plan.threads or old.threads})))

    def check_provenance(self, allow_changed: bool) -> None:
        """Check that code and versions are those that the study was made by so far, or record that they are not.

        Raises:
            OtherStudyError: they differ, and that is not allowed.
        """
        about, now = self.read(), provenance(self.plan())
        lines = provenance_differences(about, now)
        if lines and not allow_changed:
            listed = "\n  ".join(lines)
            raise OtherStudyError(
                "a study must be resumed with the code and versions that it was started with; "
                f"{self.path} differs:\n  {listed}\n"
                "restore them, give another --out, or accept runs made by both with --allow-changed-code"
            )
        if lines:
            write_checksummed(self.study, {**about, "resumed_by": [*about.get("resumed_by", ()), now]})

    def open(self, plan: Plan, source: dict[str, Any], command: str, *more: dict[str, Any]) -> None:
        """Write study.json, or check that the existing one has the same plan, model shapes and data.

        A resumed study may have more seeds, schemes or mixers, a grid also other cells; finished runs are kept.

        Args:
            plan: the study's plan.
            source: identity of the training data (text or task), which determines results; of a grid, of its
                first cell.
            command: command line of the study.
            more: the same identity for each further cell.
        """
        cells = [
            {**describe_cell_plan(part, values), **learned}
            for (part, values), learned in zip(plan.cell_plans(), (source, *more), strict=True)
        ]
        about = {
            "format": FORMAT_VERSION,
            "plan": plan.model_dump(mode="json"),
            **({"cells": cells} if plan.cells else {"compared": cells[0]["compared"], **source}),
            "command": command,
            **environment(plan),
        }
        if self.study.exists():
            old, parts = self.read(), plan.cell_plans()
            old_plan = self.plan()
            plan = plan.model_copy(
                update={name: getattr(old_plan, name) for name in RESUMABLE_FIELDS} | {"threads": old_plan.threads}
            )
            old_cells = {
                data_key(part, values): one
                for (part, values), one in zip(old_plan.cell_plans(), cells_of(old), strict=True)
            }
            lines = []
            for (part, values), new in zip(parts, cells, strict=True):
                lines += data_differences(old_cells.get(data_key(part, values), new), new)
            _refuse(self.path, list(dict.fromkeys(lines)))
            if old_plan == plan:
                return
            about["plan"] = plan.model_dump(mode="json")
            # of the first start: results of earlier versions do not say what they were made by
            about |= {name: old[name] for name in ("machine", "versions", "code", "resumed_by") if name in old}
        write_checksummed(self.study, about)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's lock; what killed processes left half-written is deleted.

        Raises:
            FolderLockedError: another process holds it.
        """
        with exclusive_lock(self.path):
            for path in unfinished_files(self.path):
                path.unlink(missing_ok=True)
            yield


def _refuse(path: Path, lines: list[str]) -> None:
    if lines:
        listed = "\n  ".join(lines)
        raise OtherStudyError(
            f"a study must be resumed with the plan it was started with; {path} differs:\n  {listed}\n"
            "repeat the original options, or give another --out"
        )
