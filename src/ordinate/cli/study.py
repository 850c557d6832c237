"""`ordinate study`: train schemes and mixers side by side and report which one to take."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, ArgumentCollection, Parameter
from cyclopts.config import Dict, Toml
from rich.console import Console

from ordinate.checks import need
from ordinate.cli.progress import watcher
from ordinate.report.build import build
from ordinate.study.conduct import conduct
from ordinate.study.engine import PATIENCE
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan
from ordinate.study.presets import preset

SIZES = frozenset({"width", "layers", "heads", "length", "learning_rate"})
Preset = Literal["quick", "standard", "thorough"]
PLAN = Parameter(name="*", consume_multiple=True, negative="")


def layers(command: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill in what the command line leaves open: from a file of options, then from the preset."""
    chosen = _given(arguments, "--preset") or "quick"
    if file := _given(arguments, "--config"):
        Toml(file, must_exist=True, use_commands_as_keys=False)(command, commands, arguments)
    # a preset that does not exist is reported when the options are read
    changes = preset(chosen, _given(arguments, "--task"), _given(arguments, "--model"))
    if _given(arguments, "--from"):
        # a trained model has its sizes already
        changes = {name: value for name, value in changes.items() if name not in SIZES}
    Dict(changes, use_commands_as_keys=False, source=f"preset {chosen}")(command, commands, arguments)


app = App(name="study", help="Train schemes and mixers side by side and report which one to take.", config=layers)


@app.default
def study(
    *,
    plan: Annotated[Plan, PLAN] = Plan(),  # noqa: B008
    preset: Preset = "quick",
    config: Path | None = None,
    out: Path | None = None,
    workers: int | None = None,
    patience: float = PATIENCE / 60,
) -> int:
    """Train schemes, mixers or both side by side, on a text or another task, and report which one to take.

    The same command goes on where it was interrupted, and does nothing that is done.

    Parameters
    ----------
    plan
        What decides the results.
    preset
        How much to train: eight schemes on a text take about 5 minutes on two cores, or an estimated 2 hours or 5
        days. Other options change a preset in detail.
    config
        A TOML file with options, below those of the command line and above the preset's.
    out
        Folder for the results; by default one in runs/ named after the plan.
    workers
        Runs at a time; by default as many as there are cores for.
    patience
        A run that says nothing for so many minutes is ended, and counts as killed.
    """
    from ordinate.study.settle import settle

    console = Console(highlight=False)
    plan = settle(plan, tell=lambda line: console.print(line, markup=False, soft_wrap=True))
    folder, failed = run(plan, out or Path("runs") / f"{preset}-{plan.digest()}", workers, console, 60 * patience)
    report = build(folder.path)
    console.print(f"report: {report}", soft_wrap=True)
    return 1 if failed else 0


def run(
    plan: Plan, out: Path, workers: int | None, console: Console, patience: float = PATIENCE
) -> tuple[Folder, list[str]]:
    """Carry out a settled plan in view of a person: the folder, and the names of runs that are not done."""
    watching = watcher(console)
    try:
        folder = conduct(plan, out, _workers(workers, plan), _command(), watching, patience)
    finally:
        watching.close()
    return folder, [item.name for item in plan.runs() if folder.status(item) != "done"]


def _workers(given: int | None, plan: Plan) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    need(
        given is None or given > 0, "workers must be above zero", f"got {given}", "give how many runs to do at a time"
    )
    return given or max(1, cores // plan.threads)


def _command() -> str:
    return shlex.join(["ordinate", *sys.argv[1:]])


def _given(arguments: ArgumentCollection, name: str) -> str | None:
    tokens = arguments[name].tokens
    return tokens[-1].value if tokens else None
