"""`ordinate study`: train schemes and mixers side by side and report which one to take."""

import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from cyclopts import App, ArgumentCollection, Parameter
from cyclopts.config import Toml
from rich.console import Console

from ordinate.cli.place import placed
from ordinate.cli.progress import watcher
from ordinate.cli.work import FLAT, ONE_DEVICE, USUAL, Work, engine_of
from ordinate.report.build import build
from ordinate.study.conduct import conduct
from ordinate.study.design import EXCEPTIONS, ONE, Wish, grid, planned, read_exceptions
from ordinate.study.engine import Engine
from ordinate.study.folder import Folder
from ordinate.study.logs import Logs
from ordinate.study.mirror import Mirror
from ordinate.study.options import Options
from ordinate.study.plan import Plan
from ordinate.study.presets import preset as preset_of
from ordinate.study.relay import Relay
from ordinate.study.state import FINAL
from ordinate.training.settings import Hardware

SIZES = frozenset({"width", "layers", "heads", "length", "learning_rate"})
Preset = Literal["quick", "standard", "thorough"]
Logger = Literal["csv", "tensorboard", "wandb", "mlflow"]
SEVERAL = Options.model_fields.keys() - ONE
PLAN = Parameter(name="*", consume_multiple=True, negative="")


def plainly(default: tuple[object, ...] | object) -> object:
    """A default as a person would write it; one of several values may stand alone."""
    return default if not isinstance(default, tuple) else None if default == (None,) else " ".join(map(str, default))


WISH = Parameter(name="*", consume_multiple=True, negative="", show_default=plainly)


class File(Toml):
    """A file of options; its tables [[cells]] are no options."""

    def _load_config(self, path: Path) -> dict[str, Any]:
        return {name: value for name, value in super()._load_config(path).items() if name != EXCEPTIONS}


def from_file(command: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill in what the command line leaves open from a file of options."""
    if tokens := arguments["--config"].tokens:
        File(tokens[-1].value, must_exist=True, use_commands_as_keys=False)(command, commands, arguments)


def taken_apart(command: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Take values apart that are written with commas: --width 64,128. In a text a comma may mean something else."""
    for argument in arguments:
        name = argument.name.removeprefix("--").replace("-", "_")
        if name in SEVERAL and not is_text(Options.model_fields[name].annotation):
            argument.tokens[:] = [
                token.evolve(value=value) for token in argument.tokens for value in token.value.split(",")
            ]


def is_text(kind: object) -> bool:
    """Whether a value of this type is a text, or holds some."""
    return kind is str or any(map(is_text, get_args(kind)))


app = App(
    name="study",
    help="Train schemes and mixers side by side and report which one to take.",
    config=(taken_apart, from_file),
)


@app.default
def study(
    *,
    plan: Annotated[Wish, WISH] = Wish(),  # noqa: B008  # pyrefly: ignore[not-a-type]
    preset: Preset = "quick",
    config: Path | None = None,
    out: str | None = None,
    logger: Logger | None = None,
    work: Annotated[Work, FLAT] = USUAL,
    hardware: Annotated[Hardware, FLAT] = ONE_DEVICE,
) -> int:
    """Train schemes, mixers or both side by side, on a text or another task, and report which one to take.

    The same command goes on where it was interrupted, and does nothing that is done.

    Parameters
    ----------
    plan
        What decides the results. Several values of an option make a grid: everything is compared with each of them.
    preset
        How much to train: eight schemes on a text take about 5 minutes on two cores, or an estimated 2 hours or 5
        days. Other options change a preset in detail.
    config
        A TOML file with options, below those of the command line and above the preset's; a table [[cells]] in it says
        what is different in some cells of a grid.
    out
        Folder for the results; by default one in runs/ named after the plan. Or a URL, s3://bucket/study: the study
        is then worked on in a folder in runs/ and copied there as it goes on, so that another machine can go on.
    logger
        Also log losses and results in the study's folder `logs`, for this tool. Nothing leaves the machine unless
        WANDB_MODE=online or MLFLOW_TRACKING_URI says so.
    work
        How many runs at a time, and where.
    hardware
        What each run is trained on.
    """
    from ordinate.study.settle import settle

    console = Console(highlight=False)
    cells = planned(plan, partial(_preset, preset, based="base" in plan.model_fields_set), read_exceptions(config))
    whole = grid([(values, settle(one, tell_in(console))) for values, one in cells])
    place, mirror = placed(out, f"{preset}-{whole.digest()}")
    engine = engine_of(whole, hardware, work, tell_in(console), mirror)
    if engine.follow(Folder(place)):
        return 0
    folder, failed = run(whole, place, engine, console, logger=logger, mirror=mirror)
    report, verdict = build(folder.path)
    if mirror:
        mirror.push()
    console.print(" ".join(verdict), markup=False)
    console.print(f"report: {report}", soft_wrap=True)
    return 1 if failed else 0


def run(
    plan: Plan,
    out: Path,
    engine: Engine,
    console: Console,
    *,
    logger: str | None = None,
    mirror: Mirror | None = None,
) -> tuple[Folder, list[str]]:
    """Carry out a settled plan in view of a person: the folder, and the names of runs that are not done."""
    logs, watching = Logs(logger, Folder(out)) if logger else None, watcher(console)
    relay = Relay(watching, mirror, logs)
    try:
        folder = conduct(plan, out, engine, _command(), relay)
    finally:
        watching.close()
        engine.dismiss()
        if logs:
            logs.close()
    # a learning rate may be too high, which is what trials are for
    fine = {item.name: ("done",) if item.rate is None else FINAL for item in plan.runs()}
    return folder, [item.name for item in plan.runs() if folder.status(item) not in fine[item.name]]


def tell_in(console: Console) -> Callable[[str], None]:
    """What says a line to a person."""
    return lambda line: console.print(line, markup=False, soft_wrap=True)


def _command() -> str:
    return shlex.join(["ordinate", *sys.argv[1:]])


def _preset(name: str, task: str | None, model: str | None, *, based: bool) -> dict[str, Any]:
    """What a preset changes; a trained model has its sizes already."""
    return {key: value for key, value in preset_of(name, task, model).items() if not (based and key in SIZES)}
