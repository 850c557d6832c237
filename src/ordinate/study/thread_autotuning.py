"""Thread autotuning: measure how many runs, with how many threads each, a machine trains fastest."""

import os
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ordinate.core.atomic_files import read_checksummed
from ordinate.core.module_command import module_command
from ordinate.study.plan import Run
from ordinate.study.study_folder import StudyFolder
from ordinate.study.worker_process import allowing

# total number of steps from which measuring is worth its time, some ten seconds; the default study has more
MIN_STEPS_TO_TUNE = 1000
# repetitions of each measurement, interleaved
ROUNDS = 2
# more threads per run are chosen only if faster by this factor
MIN_SPEEDUP = 1.05


@dataclass(frozen=True)
class ThreadTiming:
    """A measured combination of parallel runs and threads.

    Args:
        workers: parallel runs.
        threads: threads of each run.
        speed: total steps per second of all runs.
    """

    workers: int
    threads: int
    speed: float


@dataclass(frozen=True)
class ThreadChoice:
    """The chosen number of threads of each run.

    Args:
        threads: threads of each run.
        tried: the measurements; empty if none were made.
    """

    threads: int
    tried: tuple[ThreadTiming, ...] = ()

    @property
    def as_record(self) -> dict[str, Any]:
        """Contents of pace.json."""
        return asdict(self)

    @property
    def speed(self) -> float | None:
        """Total steps per second of all runs with this number of threads; None if it was not measured."""
        return next((one.speed for one in self.tried if one.threads == self.threads), None)

    @classmethod
    def read(cls, folder: StudyFolder) -> "ThreadChoice | None":
        """Return the choice that was made for a study; None if there is none."""
        try:
            record = read_checksummed(folder.threads_file)
        except (OSError, ValueError):
            return None
        return cls(record["threads"], tuple(ThreadTiming(**one) for one in record["tried"]))

    def __str__(self) -> str:
        timings = ", ".join(f"{one.workers} x {one.threads}: {one.speed:.1f}" for one in self.tried)
        return f"threads per run: {self.threads}" + (
            f" (steps per second by runs x threads: {timings})" if timings else ""
        )


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_splits(count: int, runs: int) -> list[tuple[int, int]]:
    """Combinations of parallel runs and threads that fill the cores: 1, 2, 4 threads and so on."""
    threads = [1 << power for power in range(count.bit_length())]
    return [(min(count // each, runs), each) for each in threads]


def measure_threads(folder: StudyFolder, runs: list[Run], count: int) -> ThreadChoice:
    """Measure the fastest combination on the first of these runs.

    All runs of a combination are measured at the same time, since they compete for memory bandwidth and caches.

    Args:
        folder: the study's folder.
        runs: the runs to do.
        count: number of cores.
    """
    splits = thread_splits(count, len(runs))
    with _trials(folder, runs[0], max(workers for workers, _ in splits)) as trials:
        try:
            rounds = [[_speed(trials[:workers], threads) for workers, threads in splits] for _ in range(ROUNDS)]
        except (OSError, ValueError):
            # a measuring process failed; so will the run itself, which reports the error
            return ThreadChoice(1)
    speeds = [statistics.median(timings) for timings in zip(*rounds, strict=True)]
    timings = tuple(ThreadTiming(*split, speed) for split, speed in zip(splits, speeds, strict=True))
    best = timings[0]
    for timing in timings[1:]:
        best = timing if timing.speed > MIN_SPEEDUP * best.speed else best
    return ThreadChoice(best.threads, timings)


def _speed(trials: list[subprocess.Popen[str]], threads: int) -> float:
    """Total steps per second of these processes with this number of threads each."""
    for trial in trials:
        print(threads, file=trial.stdin, flush=True)
    return sum(float(_read_line(trial)) for trial in trials)


def _read_line(trial: subprocess.Popen[str]) -> str:
    return trial.stdout.readline() if trial.stdout else ""


@contextmanager
def _trials(folder: StudyFolder, run: Run, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes that are ready to measure."""
    command = module_command("ordinate.study.speed_trial", str(folder.path), run.name)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, **allowing(folder.trusted_plan())}
    trials = [subprocess.Popen(command, text=True, env=environment, **pipes) for _ in range(count)]
    try:
        for trial in trials:
            _read_line(trial)
        yield trials
    finally:
        for trial in trials:
            trial.kill()
            trial.communicate()
