"""The model that is questioned where none is named: what was trained here last."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ordinate.checks import need
from ordinate.sources import fingerprint

RUNS = Path("runs")

Say = Callable[[str], None]


def last_trained(runs: Path = RUNS) -> Path | None:
    """The folder of the decoder that the last study trained, the best of it where it trained several; None: none."""
    studies = sorted(runs.glob("*/study.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for study in studies:
        found = [(_loss(path), path.parent / "model") for path in study.parent.glob("runs/*/result.json")]
        whole = [(loss, model) for loss, model in found if loss is not None and (model / "tokenizer.json").is_file()]
        if whole:
            return min(whole, key=lambda one: one[0])[1]
    return None


def train_small(say: Say, runs: Path = RUNS) -> Path:
    """Train a small decoder with rope on the standard library, a minute or two, and give its folder."""
    from ordinate.study.conduct import Watcher, conduct
    from ordinate.study.engines.local import Local
    from ordinate.study.plan import Plan
    from ordinate.study.settle import settle

    class Told(Watcher):
        def reading(self, name: str) -> None:
            say(f"reading {name}")

        def planned(self, plan: Plan, todo: int) -> None:
            say(f"training a decoder with rope for {plan.steps} steps")

        def news(self, news: Any) -> None:
            if news.message:
                say(news.message)

    plan = settle(Plan(schemes=("rope",), steps=400, samples=0, windows=8, shuffled=8))
    folder = conduct(plan, runs / f"probed-{plan.digest()}", Local(1), "ordinate probe", Told())
    (run,) = plan.runs()
    need(folder.status(run) == "done", "a model must have been trained", f"{run.name} was not", "try again")
    return folder.run(run) / "model"


def identity(folder: Path) -> str:
    """A string that changes when the files of a model may have changed."""
    return fingerprint(sorted(path for path in folder.iterdir() if path.is_file()))[:16]


def _loss(result: Path) -> float | None:
    try:
        written = json.loads(result.read_text(encoding="utf-8"))
        return float(written["training"]["loss"][-1]) if written["status"] == "done" else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
