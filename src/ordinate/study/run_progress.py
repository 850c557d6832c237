"""Progress of a study's runs, read from its files, so that any process or machine can follow it."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ordinate.core.folder_lock import is_locked
from ordinate.study.plan import Plan, Run
from ordinate.study.result_file import read_result
from ordinate.study.run import FINAL_STATES
from ordinate.study.study_folder import StudyFolder

# bytes read from the end of metrics.jsonl, enough for its last lines
TAIL_BYTES = 4096


@dataclass(frozen=True)
class RunProgress:
    """Progress of one run.

    Args:
        run: the run.
        stage: its final state; `running` while a process works on it, `pending` otherwise.
        step: optimiser steps done.
        steps: optimiser steps of the whole run.
        loss: training loss of the last step [nats per token]; None before the first.
        seconds_left: estimated remaining training time, from the speed since the last checkpoint [seconds]; None if
            unknown.
        message: the error message of a run that did not finish.
    """

    run: Run
    stage: str
    step: int
    steps: int
    loss: float | None
    seconds_left: float | None
    message: str


def study_progress(folder: StudyFolder, plan: Plan, before: Sequence[RunProgress] = ()) -> list[RunProgress]:
    """Return the progress of every planned run, in the order of the plan.

    Args:
        folder: the study's folder.
        plan: the study's plan.
        before: progress found earlier; runs that were final then are not read again.
    """
    ended = {one.run.name: one for one in before if one.stage in FINAL_STATES}
    return [ended.get(run.name) or run_progress(folder, plan, run) for run in plan.runs()]


def run_progress(folder: StudyFolder, plan: Plan, run: Run) -> RunProgress:
    """Return the progress of one run."""
    checkpoints, state = folder.run(run) / "checkpoints", folder.status(run)
    losses = checkpoints / "metrics.jsonl"
    step, loss = _last(losses)
    running = state == "pending" and is_locked(folder.run(run))
    message = ""
    if state not in ("pending", "done"):
        with suppress(OSError, ValueError, KeyError):
            message = str(read_result(folder.result(run))["message"])
    steps = plan.for_run(run).steps
    left = _left(checkpoints, losses, step, steps) if running else None
    return RunProgress(run, "running" if running else state, step, steps, loss, left, message)


def _last(losses: Path) -> tuple[int, float | None]:
    """Return step and loss of the last complete line of metrics.jsonl."""
    with suppress(OSError):
        with losses.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            lines = file.read().split(b"\n")
        # text after the last line break is a line still being written
        for line in reversed(lines[:-1]):
            with suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                return int(row["step"]), float(row["loss"])
    return 0, None


def _left(checkpoints: Path, losses: Path, step: int, steps: int) -> float | None:
    # remaining time: the steps since the newest checkpoint, over the time between its write and the last loss
    with suppress(OSError, ValueError):
        saved = max(checkpoints.glob("step-*"), key=lambda path: path.name)
        done = step - int(saved.name.removeprefix("step-").partition(".")[0])
        seconds = losses.stat().st_mtime - saved.stat().st_mtime
        if done > 0 and seconds > 0:
            return (steps - step) * seconds / done
    return None
