"""Load test: studies of 10,000 and of 60 simulated runs, and a text of 200 MB in 20,000 files.

Measured are the cost of the driver, of the study folder, of the report, and of reading the text.

Everything is real except the runs: each reports its progress, and writes a result of the size of the quick study's
with random numbers. The time to generate these is not counted; only the first results are written as by a real run,
so that they survive power loss, which waits for the disk. The cost of a Ray task is measured on a local Ray.
"""

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.harness.saving import save
from ordinate.cli.progress import ProgressLines
from ordinate.cli.status import progress_table
from ordinate.core.atomic_files import checksummed_text, write_text
from ordinate.core.progress import OnProgress, Progress
from ordinate.data.corpora.files import Files
from ordinate.data.token_store import prepare_tokens
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.report.build import build_report
from ordinate.study.executor import Executor
from ordinate.study.plan import Plan, Run
from ordinate.study.resolve import resolve
from ordinate.study.run_progress import study_progress
from ordinate.study.runner import run_study
from ordinate.study.study_folder import FORMAT_VERSION, StudyFolder
from ordinate.study.thread_autotuning import ThreadChoice

RUNS, LABELS = 10_000, 100
FEW_RUNS, FEW_LABELS = 60, 10
FILES, FILE_BYTES = 20_000, 10_000
# number of results that are written durably
SAFELY = 500
# sizes of a result of the quick study
DOCUMENTS, MULTIPLES, STEPS, WINDOWS = 64, (1, 2, 4, 8), 500, (1, 2, 4, 8, 16, 32, 64, 128)
# goals: memory of the driver and what the report adds [GB], overhead per run [ms], the rest [s]
GOALS = {
    "driver_gb": 1.0, "report_adds_gb": 0.3, "overhead_ms": 5.0, "going_on_seconds": 6.0, "status_seconds": 6.0,
    "report_seconds": 14.0, "text_seconds": 6.0,
}  # fmt: skip


class Instant:
    """A stopwatch of wall-clock and CPU seconds."""

    def __init__(self) -> None:
        self.began = self._now()

    def passed(self) -> np.ndarray:
        """Return wall-clock and CPU seconds since the start."""
        return self._now() - self.began

    def _now(self) -> np.ndarray:
        return np.array([time.perf_counter(), time.process_time()])


class Pretend(Executor):
    """An executor whose runs finish immediately."""

    def __init__(self) -> None:
        self.own, self.safely, self.bytes, self.written = np.zeros(2), np.zeros(2), 0, 0

    def choose_threads(
        self, folder: StudyFolder, plan: Plan, runs: list[Run], on_progress: OnProgress
    ) -> ThreadChoice:
        """One thread."""
        return ThreadChoice(1)

    def run_all(self, folder: StudyFolder, plan: Plan, runs: list[Run], on_progress: OnProgress) -> None:
        """Write a result for each run."""
        for run in runs:
            on_progress(Progress(run.name, "training", total=plan.steps))
            began = Instant()
            text = checksummed_text(pretended(run))
            folder.run(run).mkdir(parents=True, exist_ok=True)
            self._write(folder.result(run), text)
            self.own += began.passed()
            on_progress(Progress(run.name, "training", plan.steps, plan.steps, 2.0))
            on_progress(Progress(run.name, folder.status(run), total=plan.steps))

    def _write(self, path: Path, text: str) -> None:
        self.written += 1
        self.bytes += len(text)
        if self.written > SAFELY:
            path.write_text(text, encoding="utf-8")
            return
        began = Instant()
        write_text(path, text)
        self.safely += began.passed()


def pretended(run: Run) -> dict[str, Any]:
    """Return a result in the format of a real run, with random numbers."""
    draw = np.random.default_rng([run.seed, *run.label.encode()])
    level, hard = 2.0 + 0.01 * (len(run.label) + run.seed % 3), np.random.default_rng(7).normal(0, 0.3, DOCUMENTS)
    rows = []
    for times in MULTIPLES:
        nats = (level + hard + draw.normal(0, 0.02, DOCUMENTS)) * 1024 * np.log(2)
        documents = [
            {"name": f"library/module_{place}.py", "tokens": 1024, "bytes": 1024, "nats": float(value)}
            for place, value in enumerate(nats)
        ]
        mean = float(nats.mean() / 1024)
        row = {"length": 128 * times, "times": times, "nats_per_token": mean, "bits_per_byte": mean / np.log(2)}
        rows.append({**row, "interval": [mean - 0.1, mean + 0.1], "documents": documents})
    losses = (5 * np.exp(-np.arange(STEPS) / 100) + level + draw.normal(0, 0.1, STEPS)).tolist()
    parameters = {"total": 350_000, "trained": 350_000, "scheme": 0, "mixer": 110_592, "feedforward": 384, "note": ""}
    return {
        "format": FORMAT_VERSION, "run": run.as_record, "status": "done", "step": STEPS, "message": "",
        "parameters": parameters,
        "training": {"steps": list(range(1, STEPS + 1)), "loss": losses},
        "lengths": rows,
        "positions": {"position": list(range(0, 1024, 32)), "nats_per_token": losses[:32], "trained_length": 128},
        "order": [{"window": window, "nats_per_token": level + 0.1 * window} for window in WINDOWS],
        "samples": [{"prompt": "def " * 16, "text": "return x\n" * 27} for _ in range(2)],
        "cost": {"tokens_per_second": 30_000.0 + draw.normal(0, 100), "peak_memory_bytes": 600 << 20, "seconds": 40},
    }  # fmt: skip


def timed(work: Callable[[], Any]) -> tuple[np.ndarray, Any]:
    """Return wall-clock and CPU seconds, and the result."""
    began = Instant()
    found = work()
    return began.passed(), found


def peak() -> float:
    """Return the highest resident set of this process [GB]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def text_read(place: Path, files: int) -> dict[str, float]:
    """Read a text of this many files into a token store, and once more where nothing has changed."""
    words = " ".join(f"word{number}" for number in np.random.default_rng(0).integers(5000, size=3 * FILE_BYTES))
    for number in range(files):
        folder, start = place / str(number // 200), number * 977 % (len(words) - FILE_BYTES)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(words[start : start + FILE_BYTES])
    work = partial(prepare_tokens, folder=place.parent / "tokens", tokenizer=Bytes())
    first, store = timed(lambda: work(Files(path=place)))
    again, _ = timed(lambda: work(Files(path=place)))
    return {
        "text_mb": store.manifest["bytes"] / 1e6,
        "text_seconds": float(first[0]),
        "again_seconds": float(again[0]),
    }


def simulated(place: Path, runs: int, labels: int = LABELS) -> dict[str, Any]:
    """Simulate a study from the plan to the report, and resume it once."""
    text = place / "text"
    text.mkdir(parents=True)
    for number in range(20):
        (text / f"{number}.txt").write_text("".join(f"line {number * word} is {word % 13}\n" for word in range(400)))
    schemes = tuple(f"rope:theta={1000 + number}" for number in range(labels))
    wanted = Plan(text=str(text), schemes=schemes, seeds=runs // labels, precision="fp32", steps=STEPS)
    settling, plan = timed(lambda: resolve(wanted))
    engine, out = Pretend(), place / "study"
    with (place / "said.txt").open("w") as said:
        lines = ProgressLines(Console(file=said))
        driving, folder = timed(lambda: run_study(plan, out, engine, "./dev bench scale", lines.on_progress))
        again, _ = timed(lambda: run_study(plan, out, engine, "./dev bench scale", lines.on_progress))
    driver = peak()
    looking, _ = timed(lambda: progress_table(folder, plan, study_progress(folder, plan)))
    reporting, built = timed(lambda: build_report(out))
    files = sum(len(names) for _, _, names in os.walk(out))
    seconds = {
        "settle_seconds": settling,
        "overhead_ms": 1000 * (driving - engine.own) / runs,
        "result_ms": 1000 * engine.safely / min(SAFELY, runs),
        "going_on_seconds": again,
        "status_seconds": looking,
        "report_seconds": reporting,
    }
    return {
        "runs": runs,
        **{name: float(both[0]) for name, both in seconds.items()},
        "at_work": {name: float(both[1]) for name, both in seconds.items()},
        "driver_gb": driver,
        "report_adds_gb": peak() - driver,
        "report_mb": built.path.stat().st_size / 2**20,
        "result_kb": engine.bytes / runs / 2**10,
        "files_a_run": files / runs,
    }


def ray_tasks(count: int) -> dict[str, float]:
    """Cost of an empty Ray task on a local Ray [ms]."""
    from ordinate.study.executors.cluster import AUTO, ray_session

    with ray_session(AUTO) as ray:
        nothing = ray.remote(num_cpus=1)(lambda: None)
        ray.get([nothing.remote() for _ in range(10)])
        seconds, _ = timed(lambda: ray.get([nothing.remote() for _ in range(count)]))
    return {"tasks": count, "task_ms": float(1000 * seconds[0] / count)}


def main(keep: bool, quick: bool = False) -> None:
    """Run the simulation, and print its cost beside the goals."""
    place = Path(tempfile.mkdtemp())
    try:
        found = simulated(place / "many", RUNS // 10 if quick else RUNS)
        found["few_report_seconds"] = simulated(place / "few", FEW_RUNS, FEW_LABELS)["report_seconds"]
        found |= text_read(place / "files", FILES // 10 if quick else FILES)
    finally:
        shutil.rmtree(place)
    at_work = found.pop("at_work")
    print(f"{'':24}{'':10}   of them CPU")
    for name, number in found.items():
        work = f"{at_work[name]:10.2f}" if name in at_work else " " * 10
        goal = f"   goal: below {GOALS[name]:g}" if name in GOALS else ""
        print(f"{name:24}{number:10.2f}{work}{goal}")
    ray = ray_tasks(200 if quick else 1000)
    print(f"{'a task of Ray [ms]':24}{ray['task_ms']:10.2f}")
    if keep:
        print(save("scale", {**found, "at_work": at_work, "goals": GOALS, "ray": ray}))
