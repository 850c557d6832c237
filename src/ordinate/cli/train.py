"""`ordinate train`: train one model."""

from typing import Annotated

from cyclopts import App, Parameter

from ordinate.cli.console import SafeConsole
from ordinate.cli.executor_options import DEFAULT_EXECUTION, FLAT, ONE_DEVICE, make_executor
from ordinate.cli.progress import console_progress
from ordinate.cli.study import PLAN_PARAMETER, Logger, run
from ordinate.study.options import Options
from ordinate.study.plan import Plan, default_scheme
from ordinate.study.remote_sync import open_output
from ordinate.study.study_folder import StudyFolder
from ordinate.training.settings import Hardware

app = App(name="train", help="Train one model.")


class OneModel(Options):
    """Options of a plan for one model; those for several are refused, and its help text leaves them out."""

    schemes: Annotated[tuple[str, ...] | None, Parameter(show=False)] = None
    leader_seeds: Annotated[int | None, Parameter(show=False)] = None


@app.default
def train(
    scheme: str | None = None,
    *,
    plan: Annotated[OneModel, PLAN_PARAMETER] = OneModel(),  # noqa: B008
    out: str | None = None,
    logger: Logger | None = None,
    hardware: Annotated[Hardware, FLAT] = ONE_DEVICE,
    allow_changed_code: bool = False,
) -> int:
    """Train one model, on a text or another task, and evaluate it.

    Parameters
    ----------
    scheme
        Position scheme, options inline: rope:theta=500000; by default rope, axial for images, or that of the
        model given by `--from`.
    plan
        What determines the results; `--schemes` does not apply, and `--mixers` takes one value.
    out
        Folder for the model and its results, or a URL, s3://bucket/model, from which training resumes and to which
        results are copied; by default a folder in runs/ named after the plan.
    logger
        Also log losses and results with this tool, in the folder `logs`.
    hardware
        Devices to train on.
    allow_changed_code
        Resume though the code of Ordinate or versions of libraries have changed since.
    """
    from ordinate.models.registry import MODEL_KINDS
    from ordinate.study.resolve import ALL_MIXERS, resolve

    console = SafeConsole()
    if plan.schemes is not None:
        raise ValueError(
            "train takes one scheme; got --schemes; give it as argument (ordinate train rope), or use study"
        )
    if plan.mixers is not None and (len(plan.mixers) > 1 or ALL_MIXERS in plan.mixers):
        raise ValueError(f"train takes one mixer; got {', '.join(plan.mixers)}; give one, or use study")
    chosen = None if scheme is None and plan.base else (scheme or default_scheme("softmax", plan.model),)
    whole = resolve(Plan.model_validate({**dict(plan), "schemes": chosen}), console_progress(console).on_progress)
    place, mirror = open_output(out, f"train-{whole.digest()}")
    executor = make_executor(whole, hardware, DEFAULT_EXECUTION, mirror)
    if executor.join_as_follower(StudyFolder(place)):
        return 0
    folder, failed = run(whole, place, executor, console, logger, mirror, allow_changed_code)
    if not failed:
        models = [folder.run(item) / "model" for item in whole.runs() if item.rate is None]
        for model in models:
            console.print(f"model: {model}", soft_wrap=True)
        used = models[0]
        console.print(f"use it by: ordinate {MODEL_KINDS[plan.model].command} {used}", soft_wrap=True)
    return 1 if failed else 0
