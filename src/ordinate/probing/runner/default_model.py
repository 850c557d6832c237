"""The default model of `ordinate probe`: the best decoder of the last study, or a small one trained on demand."""

from pathlib import Path

from ordinate.core.checks import need
from ordinate.core.progress import OnProgress
from ordinate.data.stdlib_files import fingerprint
from ordinate.study.result_file import RESULT_ERRORS, read_result

RUNS = Path("runs")


def last_trained(runs: Path = RUNS) -> Path | None:
    """Return the folder of the decoder with the lowest final loss in the last study; None if there is none."""
    studies = sorted(runs.glob("*/study.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for study in studies:
        found = [(_loss(path), path.parent / "model") for path in study.parent.glob("runs/*/result.json")]
        whole = [(loss, model) for loss, model in found if loss is not None and (model / "tokenizer.json").is_file()]
        if whole:
            return min(whole, key=lambda one: one[0])[1]
    return None


def train_small(on_progress: OnProgress, runs: Path = RUNS) -> Path:
    """Train a small decoder with RoPE on the standard library (a minute or two) and return its folder.

    Args:
        on_progress: receives the progress of the study that trains it.
        runs: the study's folder is made in this one.
    """
    from ordinate.study.executors.local import LocalExecutor
    from ordinate.study.plan import Plan
    from ordinate.study.resolve import resolve
    from ordinate.study.runner import run_study

    plan = resolve(Plan(schemes=("rope",), steps=400, generated_texts=0, eval_samples=8, shuffle_samples=8))
    place = runs / f"probed-{plan.digest()}"
    # a single run, which is compared with nothing
    folder = run_study(plan, place, LocalExecutor(1), "ordinate probe", on_progress, allow_changed_code=True)
    (run,) = plan.runs()
    need(folder.status(run) == "done", "training must finish", f"{run.name} did not", "run the command again")
    return folder.run(run) / "model"


def model_fingerprint(folder: Path) -> str:
    """Return a fingerprint of the files of a model, to detect changes."""
    return fingerprint(sorted(path for path in folder.iterdir() if path.is_file()))[:16]


def _loss(result: Path) -> float | None:
    try:
        written = read_result(result)
        return float(written["training"]["loss"][-1]) if written["status"] == "done" else None
    except RESULT_ERRORS:
        return None
