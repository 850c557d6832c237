"""`ordinate train`: train one model."""

from pathlib import Path
from typing import Annotated

from cyclopts import App
from rich.console import Console

from ordinate.cli.study import PLAN, run
from ordinate.study.design import Wish, planned
from ordinate.study.plan import usual_scheme

app = App(name="train", help="Train one model.")


@app.default
def train(
    scheme: str | None = None,
    *,
    plan: Annotated[Wish, PLAN] = Wish(),  # noqa: B008  # pyrefly: ignore[not-a-type]
    out: Path | None = None,
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
        Folder for the model and its results; by default one in runs/ named after the plan.
    """
    from ordinate.models.kinds import KINDS
    from ordinate.study.settle import ALL, settle

    console = Console(highlight=False)
    ((values, asked), *others) = planned(plan, lambda task, model: {})
    if others:
        raise ValueError(
            f"train trains one model; got several of {', '.join(values)}; give one of each, or use study"
        )
    if asked.schemes is not None:
        raise ValueError("train trains one scheme; got --schemes; name it first (ordinate train rope), or use study")
    if asked.mixers is not None and (len(asked.mixers) > 1 or ALL in asked.mixers):
        raise ValueError(f"train trains one mixer; got {', '.join(asked.mixers)}; name one, or use study")
    chosen = None if scheme is None and asked.base else (scheme or usual_scheme("softmax", asked.model),)
    plan = settle(asked.model_copy(update={"schemes": chosen}))
    folder, failed = run(plan, out or Path("runs") / f"train-{plan.digest()}", None, console)
    if not failed:
        for item in plan.runs():
            console.print(f"model: {folder.run(item) / 'model'}", soft_wrap=True)
        used = folder.run(plan.runs()[0]) / "model"
        console.print(f"use it by: ordinate {KINDS[plan.model].command} {used}", soft_wrap=True)
    return 1 if failed else 0
