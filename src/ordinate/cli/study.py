"""`ordinate study`: train schemes and mixers under equal conditions and report which is best."""

import shlex
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from cyclopts import App, ArgumentCollection, Parameter
from cyclopts.config import Toml
from rich.console import Console

from ordinate.cli.console import SafeConsole
from ordinate.cli.executor_options import DEFAULT_EXECUTION, FLAT, ONE_DEVICE, ExecutorOptions, make_executor
from ordinate.cli.progress import console_progress
from ordinate.core.checks import need
from ordinate.core.progress import chain
from ordinate.report.build import build_report
from ordinate.report.growing import GrowingReport
from ordinate.study.executor import Executor
from ordinate.study.grid import OVERRIDES_KEY, STUDY_WIDE, PlanRequest, expand, join_cells, read_overrides
from ordinate.study.loggers import StudyLogger
from ordinate.study.options import Options
from ordinate.study.plan import Plan
from ordinate.study.presets import preset as preset_of
from ordinate.study.remote_sync import RemoteCopy, open_output
from ordinate.study.run import FINAL_STATES
from ordinate.study.runner import run_study
from ordinate.study.study_folder import StudyFolder
from ordinate.training.settings import Hardware

# preset options that a trained model (--from) determines itself
BASE_DETERMINED = frozenset({"width", "layers", "heads", "length", "learning_rate"})
Preset = Literal["quick", "standard", "thorough", "gpu-10min", "gpu-1h", "gpu-night"]
Logger = Literal["csv", "tensorboard", "wandb", "mlflow"]
FACTOR_FIELDS = Options.model_fields.keys() - STUDY_WIDE
PLAN_PARAMETER = Parameter(name="*", consume_multiple=True)


class ConfigFile(Toml):
    """A TOML file of options; its [[cells]] tables are read separately, by `read_overrides`."""

    def _load_config(self, path: Path) -> dict[str, Any]:
        return {name: value for name, value in super()._load_config(path).items() if name != OVERRIDES_KEY}


def read_config(command: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill in options missing on the command line from the --config file."""
    if tokens := arguments["--config"].tokens:
        _check_config(Path(tokens[-1].value))
        ConfigFile(tokens[-1].value, must_exist=True, use_commands_as_keys=False)(command, commands, arguments)


def _check_config(path: Path) -> None:
    """Check that a file of options can be read.

    Raises:
        ValueError: it does not exist, is a folder, or is not TOML.
    """
    came = f"{path} {'is a folder' if path.is_dir() else 'does not exist'}"
    need(path.is_file(), "--config needs a TOML file", came, "check the path")
    try:
        tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--config needs a TOML file; {path} is none ({error}); correct it") from None


def split_commas(command: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Split comma-separated values: --width 64,128; not for text options, where commas have other meanings."""
    for argument in arguments:
        name = argument.name.removeprefix("--").replace("-", "_")
        if name in FACTOR_FIELDS and not is_text(Options.model_fields[name].annotation):
            argument.tokens[:] = [
                token.evolve(value=value) for token in argument.tokens for value in token.value.split(",")
            ]


def is_text(kind: object) -> bool:
    """Whether values of this type are or contain strings."""
    return kind is str or any(map(is_text, get_args(kind)))


app = App(
    name="study",
    help="Train schemes and mixers under equal conditions and report which is best.",
    config=(split_commas, read_config),
)


@app.default
def study(
    *,
    plan: Annotated[PlanRequest, PLAN_PARAMETER] = PlanRequest(),  # noqa: B008  # pyrefly: ignore[not-a-type]
    preset: Preset = "quick",
    config: Path | None = None,
    out: str | None = None,
    logger: Logger | None = None,
    work: Annotated[ExecutorOptions, FLAT] = DEFAULT_EXECUTION,
    hardware: Annotated[Hardware, FLAT] = ONE_DEVICE,
    allow_changed_code: bool = False,
) -> int:
    """Train schemes, mixers or both under equal conditions, on a text or another task, and report which is best.

    Repeating the command resumes an interrupted study; finished runs are not repeated.

    Parameters
    ----------
    plan
        What determines the results. Several values of an option make a grid: everything is compared with each of
        them.
    preset
        Size of the study: with eight schemes on a text, about 5 minutes on two cores, or an estimated 2 hours or 5
        days; those for texts on one GPU name an estimate that has not been measured. Other options override the
        preset's.
    config
        A TOML file with options; the command line overrides it, and it overrides the preset. [[cells]] tables
        override options in some cells of a grid.
    out
        Folder for the results; by default one in runs/ named after the plan. Or a URL, s3://bucket/study: the study
        then runs in a local folder in runs/ and is copied to the URL as it progresses, so that another machine can
        resume it.
    logger
        Also log losses and results with this tool, in the study's folder `logs`. Nothing leaves the machine unless
        WANDB_MODE=online or MLFLOW_TRACKING_URI is set.
    work
        Number of parallel runs, and where they are carried out.
    hardware
        Devices that each run is trained on.
    allow_changed_code
        Resume a study though the code of Ordinate or versions of libraries have changed since; the report says which
        runs were made by which.
    """
    from ordinate.study.resolve import resolve

    console = SafeConsole()
    cells = expand(plan, partial(_preset, preset, based="base" in plan.model_fields_set), read_overrides(config))
    on_progress = console_progress(console).on_progress
    whole = join_cells([(values, resolve(one, on_progress)) for values, one in cells])
    place, mirror = open_output(out, f"{preset}-{whole.digest()}")
    executor = make_executor(whole, hardware, work, mirror)
    if executor.join_as_follower(StudyFolder(place)):
        return 0
    folder, failed = run(whole, place, executor, console, logger, mirror, allow_changed_code)
    report = build_report(folder.path)
    if mirror:
        mirror.push()
    console.print("\n".join(report.lines(console.width)), markup=False)
    console.print(f"report: {report.path}", soft_wrap=True)
    return 1 if failed else 0


def run(
    plan: Plan,
    out: Path,
    executor: Executor,
    console: Console,
    logger: str | None = None,
    mirror: RemoteCopy | None = None,
    allow_changed_code: bool = False,
) -> tuple[StudyFolder, list[str]]:
    """Carry out a resolved plan with progress output; returns its folder and the names of unsuccessful runs."""
    plan = StudyFolder(out).resumed(plan)
    logs = StudyLogger(logger, StudyFolder(out)) if logger else None
    # the leading ones are not known yet: any may be
    possible = plan.model_copy(update={"leaders": tuple(label for label, _, _ in plan.arms())}).runs()
    titles = {item.name: item.title.removesuffix(" seed 0") for item in possible}
    display = console_progress(console, titles)
    callbacks = [mirror.uploader(plan.checkpoint_every)] if mirror else []
    callbacks += [logs.on_progress] if logs else []
    callbacks.append(GrowingReport(out, display.on_progress).on_progress)
    try:
        on_progress = chain(*callbacks, display.on_progress)
        folder = run_study(plan, out, executor, _command(), on_progress, allow_changed_code=allow_changed_code)
    finally:
        display.close()
        executor.release_followers()
        if logs:
            logs.close()
    # a tuning run may diverge: it tests whether a learning rate is too high
    runs = folder.with_leaders(plan).runs()
    fine = {item.name: ("done",) if item.rate is None else FINAL_STATES for item in runs}
    return folder, [item.name for item in runs if folder.status(item) not in fine[item.name]]


def _command() -> str:
    return shlex.join(["ordinate", *sys.argv[1:]])


def _preset(name: str, task: str | None, model: str | None, *, based: bool) -> dict[str, Any]:
    """Options of a preset; with --from without those that the trained model determines."""
    return {
        key: value for key, value in preset_of(name, task, model).items() if not (based and key in BASE_DETERMINED)
    }
