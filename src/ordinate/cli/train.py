"""`ordinate train`: train one model."""

from typing import Annotated

from cyclopts import App
from rich.console import Console

from ordinate.cli.place import placed
from ordinate.cli.study import PLAN, Logger, run, tell_in
from ordinate.cli.work import FLAT, ONE_DEVICE, USUAL, engine_of
from ordinate.study.folder import Folder
from ordinate.study.options import Options
from ordinate.study.plan import Plan, usual_scheme
from ordinate.training.settings import Hardware

app = App(name="train", help="Train one model.")


@app.default
def train(
    scheme: str | None = None,
    *,
    plan: Annotated[Options, PLAN] = Options(),  # noqa: B008
    out: str | None = None,
    logger: Logger | None = None,
    hardware: Annotated[Hardware, FLAT] = ONE_DEVICE,
) -> int:
    """Train one model, on a text or another task, and measure it.

    Parameters
    ----------
    scheme
        Its positional scheme, options inline: rope:theta=500000; by default rope, axial for images, or that of the
        model named by `--from`.
    plan
        What decides the results; `--schemes` is of no use here, and of `--mixers` one can be named.
    out
        Folder for the model and its results, or a URL, s3://bucket/model, that is gone on from and copied to; by
        default a folder in runs/ named after the plan.
    logger
        Also log losses and results in the folder `logs`, for this tool.
    hardware
        What it is trained on.
    """
    from ordinate.models.kinds import KINDS
    from ordinate.study.settle import ALL, settle

    console = Console(highlight=False)
    if plan.schemes is not None:
        raise ValueError("train trains one scheme; got --schemes; name it first (ordinate train rope), or use study")
    if plan.mixers is not None and (len(plan.mixers) > 1 or ALL in plan.mixers):
        raise ValueError(f"train trains one mixer; got {', '.join(plan.mixers)}; name one, or use study")
    chosen = None if scheme is None and plan.base else (scheme or usual_scheme("softmax", plan.model),)
    whole = settle(Plan.model_validate({**dict(plan), "schemes": chosen}))
    place, mirror = placed(out, f"train-{whole.digest()}")
    engine = engine_of(whole, hardware, USUAL, tell_in(console), mirror)
    if engine.follow(Folder(place)):
        return 0
    folder, failed = run(whole, place, engine, console, logger=logger, mirror=mirror)
    if not failed:
        models = [folder.run(item) / "model" for item in whole.runs() if item.rate is None]
        for model in models:
            console.print(f"model: {model}", soft_wrap=True)
        used = models[0]
        console.print(f"use it by: ordinate {KINDS[plan.model].command} {used}", soft_wrap=True)
    return 1 if failed else 0
