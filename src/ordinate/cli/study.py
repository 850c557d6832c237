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
from ordinate.cli.hardware import HARDWARE, ONE_DEVICE, engine_of, follows
from ordinate.cli.progress import watcher
from ordinate.report.build import build
from ordinate.study.conduct import conduct
from ordinate.study.engine import PATIENCE, Engine
from ordinate.study.engines.local import Local
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan
from ordinate.study.presets import preset
from ordinate.training.settings import Hardware

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
    ray: str | None = None,
    hardware: Annotated[Hardware, HARDWARE] = ONE_DEVICE,
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
    ray
        Carry the runs out on a Ray cluster: its address, or `auto` for the one at hand or one of this machine alone.
        `--out` is then a folder that all of its machines share.
    hardware
        What each run is trained on.
    """
    from ordinate.study.settle import settle

    console = Console(highlight=False)
    plan = settle(plan, tell=lambda line: console.print(line, markup=False, soft_wrap=True))
    out = out or Path("runs") / f"{preset}-{plan.digest()}"
    engine = engine_of(plan, hardware, workers, 60 * patience, ray) or _engine(plan, workers, 60 * patience, ray)
    if follows(engine, out):
        return 0
    folder, failed = run(plan, out, engine, console)
    report = build(folder.path)
    console.print(f"report: {report}", soft_wrap=True)
    return 1 if failed else 0


def run(plan: Plan, out: Path, engine: Engine | None, console: Console) -> tuple[Folder, list[str]]:
    """Carry out a settled plan in view of a person: the folder, and the names of runs that are not done."""
    watching = watcher(console)
    try:
        folder = conduct(plan, out, engine or Local(usual_workers(plan)), _command(), watching)
    finally:
        watching.close()
    return folder, [item.name for item in plan.runs() if folder.status(item) != "done"]


def usual_workers(plan: Plan) -> int:
    """As many runs at a time as there are cores for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // plan.threads)


def _engine(plan: Plan, workers: int | None, patience: float, ray: str | None) -> Engine:
    if ray is None:
        return Local(usual_workers(plan) if workers is None else workers, patience)
    need(
        workers is None,
        "a cluster decides how many runs are done at a time",
        f"got --workers {workers} with --ray {ray}",
        "leave it out",
    )
    from ordinate.study.engines.cluster import Cluster

    return Cluster(ray, patience)


def _command() -> str:
    return shlex.join(["ordinate", *sys.argv[1:]])


def _given(arguments: ArgumentCollection, name: str) -> str | None:
    tokens = arguments[name].tokens
    return tokens[-1].value if tokens else None
