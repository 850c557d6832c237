"""A study of 10,000 runs that do nothing: what the driver, the folder, the states and the report cost.

Everything is the real thing but the runs: each is begun, told of, and leaves a result as large as the quick study's,
whose numbers are drawn. What making those takes is not counted; only the first are written as a run does it, so that
they survive power loss: that waits for the disk. A Ray of this machine alone says what a task costs.
"""

import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.saving import save
from ordinate.cli.progress import Lines
from ordinate.cli.status import picture
from ordinate.files import write_text
from ordinate.report.build import build
from ordinate.study.conduct import conduct
from ordinate.study.engine import Engine, News, Watch
from ordinate.study.folder import FORMAT, Folder
from ordinate.study.follow import standings
from ordinate.study.pace import Pace
from ordinate.study.plan import Plan, Run
from ordinate.study.settle import settle

RUNS, LABELS = 10_000, 100
# so many results are written as a run writes them
SAFELY = 500
# the sizes of a result of the quick study
DOCUMENTS, MULTIPLES, STEPS, WINDOWS = 64, (1, 2, 4, 8), 500, (1, 2, 4, 8, 16, 32, 64, 128)
PAGE, MARKS = Path(__file__).parents[1] / "docs" / "scale.md", ("<!-- measured -->", "<!-- end of measured -->")
# the goals: gigabytes of the driver, seconds of overhead a run, seconds of the report
GOALS = {"driver_gb": 1.0, "overhead_ms": 5.0, "report_seconds": 60.0}


class Instant:
    """Now, to count from: in seconds of this world, and of this process at work."""

    def __init__(self) -> None:
        self.began = self._now()

    def passed(self) -> np.ndarray:
        """Both since then."""
        return self._now() - self.began

    def _now(self) -> np.ndarray:
        return np.array([time.perf_counter(), time.process_time()])


class Pretend(Engine):
    """Runs that are done at once."""

    def __init__(self) -> None:
        self.own, self.safely, self.bytes, self.written = np.zeros(2), np.zeros(2), 0, 0

    def pace(self, folder: Folder, plan: Plan, runs: list[Run]) -> Pace:
        """One thread."""
        return Pace(1)

    def carry_out(self, folder: Folder, plan: Plan, runs: list[Run], watch: Watch) -> None:
        """Leave a result of each."""
        for run in runs:
            watch(News(run, "training"))
            began = Instant()
            text = json.dumps(pretended(run))
            folder.run(run).mkdir(parents=True, exist_ok=True)
            self._write(folder.result(run), text)
            self.own += began.passed()
            watch(News(run, "training", plan.steps, 2.0))
            watch(News(run, folder.status(run)))

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
    """A result as a run leaves it, with numbers that are drawn."""
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
        "format": FORMAT, "run": run.about, "status": "done", "step": STEPS, "message": "", "parameters": parameters,
        "training": {"steps": list(range(1, STEPS + 1)), "loss": losses},
        "lengths": rows,
        "positions": {"position": list(range(0, 1024, 32)), "nats_per_token": losses[:32], "trained_length": 128},
        "order": [{"window": window, "nats_per_token": level + 0.1 * window} for window in WINDOWS],
        "samples": [{"prompt": "def " * 16, "text": "return x\n" * 27} for _ in range(2)],
        "cost": {"tokens_per_second": 30_000.0 + draw.normal(0, 100), "peak_memory_bytes": 600 << 20, "seconds": 40},
    }  # fmt: skip


def timed(work: Callable[[], Any]) -> tuple[np.ndarray, Any]:
    """Seconds, and of them those of this process at work; and what came out."""
    began = Instant()
    found = work()
    return began.passed(), found


def peak() -> float:
    """The most memory that this process has held [GB]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def simulated(place: Path, runs: int) -> dict[str, Any]:
    """A study of so many runs, from its plan to its report and back."""
    text = place / "text"
    text.mkdir()
    for number in range(20):
        (text / f"{number}.txt").write_text("".join(f"line {number * word} is {word % 13}\n" for word in range(400)))
    schemes = tuple(f"rope:theta={1000 + number}" for number in range(LABELS))
    wanted = Plan(text=str(text), schemes=schemes, seeds=runs // LABELS, precision="fp32", steps=STEPS)
    settling, plan = timed(lambda: settle(wanted))
    engine, out = Pretend(), place / "study"
    with (place / "said.txt").open("w") as said:
        lines = Lines(Console(file=said))
        driving, folder = timed(lambda: conduct(plan, out, engine, "./dev bench scale", lines))
        again, _ = timed(lambda: conduct(plan, out, engine, "./dev bench scale", lines))
    driver = peak()
    looking, _ = timed(lambda: picture(folder, plan, standings(folder, plan)))
    reporting, built = timed(lambda: build(out))
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
        "report_gb": peak(),
        "report_mb": built.path.stat().st_size / 2**20,
        "result_kb": engine.bytes / runs / 2**10,
        "files_a_run": files / runs,
    }


def ray_tasks(count: int) -> dict[str, float]:
    """What a task of Ray costs that does nothing [ms], on this machine alone."""
    from ordinate.study.engines.cluster import AUTO, session

    with session(AUTO) as ray:
        nothing = ray.remote(num_cpus=1)(lambda: None)
        ray.get([nothing.remote() for _ in range(10)])
        seconds, _ = timed(lambda: ray.get([nothing.remote() for _ in range(count)]))
    return {"tasks": count, "task_ms": float(1000 * seconds[0] / count)}


def main(keep: bool, quick: bool = False) -> None:
    """Simulate, and print what it cost beside the goals."""
    place = Path(tempfile.mkdtemp())
    try:
        found = simulated(place, RUNS // 10 if quick else RUNS)
    finally:
        shutil.rmtree(place)
    at_work = found.pop("at_work")
    print(f"{'':24}{'':10}   of them at work")
    for name, number in found.items():
        work = f"{at_work[name]:10.2f}" if name in at_work else " " * 10
        goal = f"   goal: below {GOALS[name]:g}" if name in GOALS else ""
        print(f"{name:24}{number:10.2f}{work}{goal}")
    ray = ray_tasks(200 if quick else 1000)
    print(f"{'a task of Ray [ms]':24}{ray['task_ms']:10.2f}")
    if keep:
        path = save("scale", {**found, "at_work": at_work, "goals": GOALS, "ray": ray})
        print(path)
        tell(path)


def table(path: Path) -> str:
    """What a file of results says, as a table."""
    found = json.loads(path.read_text(encoding="utf-8"))["results"]
    rows = [
        ("plan settled, every model checked", f"{found['settle_seconds']:.0f} s"),
        ("overhead of the driver, a run", f"{found['overhead_ms']:.1f} ms"),
        ("result of a run, written safely", f"{found['result_ms']:.1f} ms"),
        ("same command again: what is missing?", f"{found['going_on_seconds']:.0f} s"),
        ("`ordinate status`", f"{found['status_seconds']:.0f} s"),
        ("report", f"{found['report_seconds']:.0f} s, {found['report_mb']:.1f} MB"),
        ("memory of the driver", f"{found['driver_gb']:.2f} GB, {found['report_gb']:.2f} GB with the report"),
        ("a task of Ray that does nothing", f"{found['ray']['task_ms']:.1f} ms"),
    ]
    lines = [f"| {int(found['runs']):,} runs | |", "|---|---|", *(f"| {name} | {said} |" for name, said in rows)]
    return "\n".join(lines)


def tell(path: Path) -> None:
    """Write the table of docs/scale.md anew from a file of results."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    tail = rest.partition(MARKS[1])[2]
    PAGE.write_text("\n".join([head + MARKS[0], table(path), MARKS[1] + tail]), encoding="utf-8")
