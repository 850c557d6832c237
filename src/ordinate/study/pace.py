"""How many runs of how many threads a machine does fastest, measured."""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ordinate.study.folder import Folder
from ordinate.study.plan import Run

# a study of fewer steps in all is done before measuring has paid
WORTH = 2000
# how often each way is tried, in turns
ROUNDS = 2
# more threads are taken only where they are faster by so much
GAIN = 1.05


@dataclass(frozen=True)
class Way:
    """One way to share a machine.

    Args:
        workers: runs at a time.
        threads: processor threads of each.
        speed: steps a second of all of them together.
    """

    workers: int
    threads: int
    speed: float


@dataclass(frozen=True)
class Pace:
    """How the runs of a study share a machine.

    Args:
        threads: processor threads of each run.
        tried: what was measured; nothing where that was not worth it.
    """

    threads: int
    tried: tuple[Way, ...] = ()

    @property
    def about(self) -> dict[str, Any]:
        """What the study's folder keeps of it."""
        return asdict(self)

    def __str__(self) -> str:
        ways = ", ".join(f"{way.workers} x {way.threads}: {way.speed:.1f}" for way in self.tried)
        return f"threads of a run: {self.threads}" + (f" (steps a second of runs x threads: {ways})" if ways else "")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ways(count: int, runs: int) -> list[tuple[int, int]]:
    """Runs at a time and threads of each that share so many cores: 1, 2, 4 threads and so on."""
    threads = [1 << power for power in range(count.bit_length())]
    return [(min(count // each, runs), each) for each in threads]


def measured(folder: Folder, runs: list[Run], count: int) -> Pace:
    """The pace that trials of the first of these runs show to be the fastest on so many cores.

    Each way trains for a moment, all of its runs at once, since those that share a machine slow each other down.

    Args:
        folder: of the study.
        runs: that are to be done.
        count: cores.
    """
    tried = ways(count, len(runs))
    with _trials(folder, runs[0], max(workers for workers, _ in tried)) as trials:
        try:
            rounds = [[_speed(trials[:workers], threads) for workers, threads in tried] for _ in range(ROUNDS)]
        except (OSError, ValueError):
            # one ended on the way, and so will the run, which says why
            return Pace(1)
    speeds = [statistics.median(found) for found in zip(*rounds, strict=True)]
    found = tuple(Way(*way, speed) for way, speed in zip(tried, speeds, strict=True))
    best = found[0]
    for way in found[1:]:
        best = way if way.speed > GAIN * best.speed else best
    return Pace(best.threads, found)


def _speed(trials: list[subprocess.Popen[str]], threads: int) -> float:
    """Steps a second of all these together."""
    for trial in trials:
        print(threads, file=trial.stdin, flush=True)
    return sum(float(_heard(trial)) for trial in trials)


def _heard(trial: subprocess.Popen[str]) -> str:
    return trial.stdout.readline() if trial.stdout else ""


@contextmanager
def _trials(folder: Folder, run: Run, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """So many processes that are ready to train."""
    command = [sys.executable, "-m", "ordinate.study.trial", str(folder.path), run.name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    trials = [subprocess.Popen(command, text=True, **pipes) for _ in range(count)]
    try:
        for trial in trials:
            _heard(trial)
        yield trials
    finally:
        for trial in trials:
            trial.kill()
            trial.communicate()
