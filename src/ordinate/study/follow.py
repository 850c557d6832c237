"""How far the runs of a study are, read from its files: from another terminal, or from another machine."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ordinate.files import read_sealed
from ordinate.lock import occupied
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan, Run
from ordinate.study.state import FINAL

# this many bytes hold the last lines of a file of losses
TAIL = 4096


@dataclass(frozen=True)
class Standing:
    """How far a run is.

    Args:
        run: which one.
        stage: how it ended; `running` while a process is at work on it, `pending` otherwise.
        step: optimiser steps done.
        steps: all that it takes.
        loss: training loss of the last of them [nats a token]; None before the first.
        left: how long its training will take yet, as fast as it went since the last checkpoint [seconds]; None where
            that is not known.
        message: why it did not come to its end.
    """

    run: Run
    stage: str
    step: int
    steps: int
    loss: float | None
    left: float | None
    message: str


def standings(folder: Folder, plan: Plan, before: Sequence[Standing] = ()) -> list[Standing]:
    """Every planned run, in the order of the plan.

    Args:
        folder: of the study.
        plan: what is to be done.
        before: what was found the last time; a run that was done then is not read again.
    """
    ended = {one.run.name: one for one in before if one.stage in FINAL}
    return [ended.get(run.name) or standing(folder, plan, run) for run in plan.runs()]


def standing(folder: Folder, plan: Plan, run: Run) -> Standing:
    """How far this run is."""
    checkpoints, state = folder.run(run) / "checkpoints", folder.status(run)
    losses = checkpoints / "metrics.jsonl"
    step, loss = _last(losses)
    running = state == "pending" and occupied(folder.run(run))
    message = ""
    if state not in ("pending", "done"):
        with suppress(OSError, ValueError, KeyError):
            message = str(read_sealed(folder.result(run))["message"])
    steps = plan.of(run).steps
    left = _left(checkpoints, losses, step, steps) if running else None
    return Standing(run, "running" if running else state, step, steps, loss, left, message)


def _last(losses: Path) -> tuple[int, float | None]:
    """The last whole line: a step and its loss."""
    with suppress(OSError):
        with losses.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().split(b"\n")
        # what stands behind the last line break is not whole
        for line in reversed(lines[:-1]):
            with suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                return int(row["step"]), float(row["loss"])
    return 0, None


def _left(checkpoints: Path, losses: Path, step: int, steps: int) -> float | None:
    with suppress(OSError, ValueError):
        saved = max(checkpoints.glob("step-*"), key=lambda path: path.name)
        done = step - int(saved.name.removeprefix("step-").partition(".")[0])
        seconds = losses.stat().st_mtime - saved.stat().st_mtime
        if done > 0 and seconds > 0:
            return (steps - step) * seconds / done
    return None
