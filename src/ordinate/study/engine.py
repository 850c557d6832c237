"""Carry out the runs of a study on this machine, each in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ordinate.files import write_json
from ordinate.study.folder import FORMAT, Folder
from ordinate.study.plan import Plan, Run

# the end of a failed run's messages that its result keeps
KEPT_LINES = 20
# how a process ends that was asked to stop: by itself, or by the signal
STOPPED = (130, 143, -2, -15)


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
    crew = Crew()
    with ThreadPoolExecutor(max_workers=workers) as pool, _terminable():
        futures = [pool.submit(_one, folder, plan, run, watch, crew) for run in runs]
        try:
            for future in futures:
                future.result()
        except BaseException:
            crew.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class Crew:
    """The processes at work, which can be asked to stop together."""

    def __init__(self) -> None:
        self.stopped = False
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[str] | None:
        """Start a process; None once all were asked to stop."""
        with self._lock:
            if self.stopped:
                return None
            process = subprocess.Popen(command, text=True, **options)
            self._processes.append(process)
            return process

    def stop(self) -> None:
        """Ask each process to save what it has and end, and start no more."""
        with self._lock:
            self.stopped = True
            for process in self._processes:
                if process.poll() is None:
                    process.terminate()


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM interrupts a study just as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _one(folder: Folder, plan: Plan, run: Run, watch: Watch, crew: Crew) -> None:
    place = folder.run(run)
    place.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "ordinate.study.worker", str(folder.path), run.name]
    threads = {"OMP_NUM_THREADS": str(plan.threads), "MKL_NUM_THREADS": str(plan.threads)}
    with (place / "messages.txt").open("w", encoding="utf-8") as messages:
        environment = {**os.environ, **threads}
        process = crew.start(command, stdout=subprocess.PIPE, stderr=messages, env=environment)
        if process is None or process.stdout is None:
            return
        watch(News(run, "training"))
        with process.stdout:
            for line in process.stdout:
                _pass_on(line, plan, run, watch)
        code = process.wait()
    _conclude(folder, run, code, watch, crew)


def _pass_on(line: str, plan: Plan, run: Run, watch: Watch) -> None:
    try:
        news = json.loads(line)
    except ValueError:
        # a library's own word on standard output
        return
    if isinstance(news, dict):
        done = plan.steps if news.get("stage") == "measuring" else int(news.get("step", 0))
        watch(News(run, str(news.get("stage", "training")), done, news.get("loss")))


def _conclude(folder: Folder, run: Run, code: int, watch: Watch, crew: Crew) -> None:
    status = folder.status(run)
    if code == 0 and status in ("done", "diverged"):
        watch(News(run, status))
        return
    if crew.stopped or code in STOPPED:
        watch(News(run, "waiting"))
        return
    said = (folder.run(run) / "messages.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    message = "\n".join(said[-KEPT_LINES:]) or f"the process ended with code {code} and said nothing"
    write_json(
        folder.result(run),
        {"format": FORMAT, "run": run.about, "status": "failed", "step": 0, "message": message, "parameters": {}},
    )
    watch(News(run, "failed", message=message))
