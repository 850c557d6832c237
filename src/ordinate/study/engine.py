"""Carry out the runs of a study on this machine, each in a process of its own."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ordinate.files import write_json
from ordinate.study.folder import FORMAT, Folder
from ordinate.study.plan import Plan, Run

# the end of a failed run's messages that its result keeps
KEPT_LINES = 20


@dataclass(frozen=True)
class News:
    """How far a run is.

    Args:
        run: which one.
        stage: waiting, training, measuring, done, diverged or failed.
        step: optimiser steps done.
        loss: training loss [nats a token]; None before the first step.
        message: why it failed.
    """

    run: Run
    stage: str
    step: int = 0
    loss: float | None = None
    message: str = ""


Watch = Callable[[News], None]


def carry_out(folder: Folder, plan: Plan, runs: list[Run], workers: int, watch: Watch) -> None:
    """Do these runs, `workers` at a time; returns when each has a result.

    A run that fails is recorded as failed, with the end of what it said, and the others go on. When the study is
    interrupted the runs are told to stop, and each saves a checkpoint before it ends.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(_one, folder, plan, run, watch, stop) for run in runs]
        try:
            for future in futures:
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _one(folder: Folder, plan: Plan, run: Run, watch: Watch, stop: threading.Event) -> None:
    if stop.is_set():
        return
    place = folder.run(run)
    place.mkdir(parents=True, exist_ok=True)
    watch(News(run, "training"))
    command = [sys.executable, "-m", "ordinate.study.worker", str(folder.path), run.name]
    threads = {"OMP_NUM_THREADS": str(plan.threads), "MKL_NUM_THREADS": str(plan.threads)}
    with (place / "messages.txt").open("w", encoding="utf-8") as messages:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=messages, text=True, env={**os.environ, **threads}
        )
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                _pass_on(line, plan, run, watch)
        code = process.wait()
    _conclude(folder, run, code, watch, stop)


def _pass_on(line: str, plan: Plan, run: Run, watch: Watch) -> None:
    try:
        news = json.loads(line)
    except ValueError:
        # a library's own word on standard output
        return
    if isinstance(news, dict):
        done = plan.steps if news.get("stage") == "measuring" else int(news.get("step", 0))
        watch(News(run, str(news.get("stage", "training")), done, news.get("loss")))


def _conclude(folder: Folder, run: Run, code: int, watch: Watch, stop: threading.Event) -> None:
    status = folder.status(run)
    if code == 0 and status in ("done", "diverged"):
        watch(News(run, status))
        return
    if stop.is_set() or code in (130, 143, -2, -15):
        watch(News(run, "waiting"))
        return
    said = (folder.run(run) / "messages.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    message = "\n".join(said[-KEPT_LINES:]) or f"the process ended with code {code} and said nothing"
    about = {"name": run.name, "scheme": run.scheme, "options": run.options, "label": run.label, "seed": run.seed}
    write_json(
        folder.result(run),
        {"format": FORMAT, "run": about, "status": "failed", "step": 0, "message": message, "parameters": {}},
    )
    watch(News(run, "failed", message=message))
