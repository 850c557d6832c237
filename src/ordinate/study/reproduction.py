"""Train a run of a finished study again, from its text to its result, in a folder of its own."""

import random
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ordinate.core.atomic_files import write_checksummed
from ordinate.core.checks import need, need_known
from ordinate.core.interruption import sigterm_as_interrupt
from ordinate.core.progress import OnProgress, Progress
from ordinate.data.dataset_folder import is_intact
from ordinate.study.data_source import source_of
from ordinate.study.executor import STALL_TIMEOUT
from ordinate.study.manifest import cells_of, environment, provenance, provenance_differences
from ordinate.study.plan import Plan, differences
from ordinate.study.result_file import FORMAT_VERSION, RESULT_ERRORS, read_result
from ordinate.study.run import FINAL_STATES, Run, State
from ordinate.study.study_folder import StudyFolder
from ordinate.study.thread_autotuning import ThreadChoice
from ordinate.study.worker_process import WorkerPool, run_in_subprocess
from ordinate.training.metrics import Metrics

# key in the study.json of a reproduction: the study whose run was trained again
MARK = "reproduces"


@dataclass(frozen=True)
class TrainedAgain:
    """A run of a study, and the same run trained again.

    Args:
        stored: its result in the study.
        result: the new result; with a limit of steps, only `training` of it.
        folder: the folder that it was trained in.
    """

    stored: dict[str, Any]
    result: dict[str, Any]
    folder: StudyFolder


def sample_run(
    study: StudyFolder, name: str | None, seed: int, states: Sequence[State] = FINAL_STATES
) -> tuple[Run, dict[str, Any]]:
    """Return a run to train again and its stored result: the one with this name, or a random one of those that ended.

    Args:
        study: the study.
        name: name of the run; None: one of the final runs, tuning runs left out.
        seed: seed of the choice.
        states: states of runs to choose from; losses are stored of those only that are done.

    Raises:
        ValueError: no such run, or none with a result that can be read.
    """
    runs = {run.name: run for run in study.trusted_plan().runs()}
    if name is not None:
        need_known("run of this study", name, runs)
        need(
            study.result(name).exists(),
            "a run must have a result to compare with",
            f"{name} has none",
            "give another",
        )
        found = {name: read_result(study.result(name))}
    else:
        found = _final_results(study, runs.values())
    ended = {one: result for one, result in found.items() if result["status"] in states}
    need(
        bool(ended),
        f"a run must be {' or '.join(states)} to be compared",
        f"{name} is {found[name]['status']}" if name else f"{study.path} has none",
        "finish the study first, or give another run",
    )
    chosen = random.Random(seed).choice(sorted(ended))
    return runs[chosen], ended[chosen]


def _final_results(study: StudyFolder, runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    found = {}
    for run in runs:
        if run.rate is None:
            try:
                found[run.name] = read_result(study.result(run))
            except RESULT_ERRORS:
                # a damaged result is not chosen, as none is
                continue
    return found


def train_again(
    study: StudyFolder, run: Run, stored: dict[str, Any], out: Path, on_progress: OnProgress, steps: int | None = None
) -> TrainedAgain:
    """Train a run again in the folder `out`; an interrupted training resumes there.

    Args:
        study: the study; only read.
        run: the run.
        stored: its result.
        out: folder to train in.
        on_progress: receives the progress of the run.
        steps: stop after so many steps, with the learning rates of the whole run; None: train and evaluate the whole.

    Raises:
        ValueError: the data is not that of the study, or `steps` is not below those of the run.
        OtherStudyError: the folder holds other files, or a reproduction of another study.
    """
    plan, again = study.trusted_plan(), StudyFolder(out)
    whole = plan.for_run(run).steps
    need(
        steps is None or 0 < steps < whole,
        f"--steps must be at least 1, and below the {whole} of the run",
        f"got {steps}",
        "leave it out to train the whole run",
    )
    on_progress(Progress(message=_announcement(study, run, whole, stored, steps)))
    with again.lock():
        _prepare(study, again, plan, run, on_progress)
        # one that has ended would not be trained again
        if again.status(run) in FINAL_STATES or steps is not None:
            shutil.rmtree(again.run(run), ignore_errors=True)
        pool = WorkerPool()

        def watch(progress: Progress) -> None:
            done = progress.done or 0
            on_progress(progress if steps is None else replace(progress, done=min(done, steps), total=steps))
            if steps is not None and done >= steps:
                pool.stop()

        # in another thread, so that Ctrl-C interrupts this one, which then stops the worker and waits for it
        with sigterm_as_interrupt(), ThreadPoolExecutor(max_workers=1) as submitter:
            try:
                submitter.submit(run_in_subprocess, again, plan, run, watch, pool, STALL_TIMEOUT).result()
            except BaseException:
                pool.stop()
                raise
        return TrainedAgain(stored, _new_result(again, run, steps), again)


def _announcement(study: StudyFolder, run: Run, whole: int, stored: dict[str, Any], steps: int | None) -> str:
    """Say what is trained, and how long it took in the study."""
    extent = f"{whole} steps" if steps is None else f"the first {steps} of {whole} steps"
    seconds = stored.get("cost", {}).get("seconds")
    estimate = f"; in the study they took about {max(1, seconds * (steps or whole) / whole):.0f} s" if seconds else ""
    return f"training {run.name} of {study.path} again: {extent}{estimate}"


def _new_result(again: StudyFolder, run: Run, steps: int | None) -> dict[str, Any]:
    rows = Metrics(again.run(run) / "checkpoints" / "metrics.jsonl").read()[:steps]
    if steps is None or len(rows) < steps:
        # with fewer steps than wanted, the worker has failed and said why
        stopped = f"{again.run(run)} has no result"
        need(again.result(run).exists(), "training must not be stopped", stopped, "repeat the command to resume it")
        return read_result(again.result(run))
    return {"status": "done", "training": {"steps": [step for step, _ in rows], "loss": [loss for _, loss in rows]}}


def _prepare(study: StudyFolder, again: StudyFolder, plan: Plan, run: Run, on_progress: OnProgress) -> None:
    """Write what a worker needs: the plan, the data, the number of threads, and the results that tuned the rate."""
    if again.study.exists():
        # runs are removed below, which must not be those of a study
        own = MARK in again.read()
        need(own, "a reproduction needs a folder of its own", f"{again.path} holds a study", "give another --out")
    again.check(plan)
    if again.study.exists() and provenance_differences(again.read(), provenance(plan)):
        # begun by other code, which cannot be resumed
        shutil.rmtree(again.path / "runs", ignore_errors=True)
        again.study.unlink()
        again.threads_file.unlink(missing_ok=True)
    _prepare_data(study, again, plan, run, on_progress)
    write_checksummed(again.threads_file, ThreadChoice(plan.threads or study.threads() or 1).as_record)
    for trial in plan.for_cell(run.cell).tuning_runs(run.cell):
        if run.rate is None and trial.label == run.label:
            again.run(trial).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(study.result(trial), again.result(trial))
    if not again.study.exists():
        about = {name: value for name, value in study.read().items() if name not in ("machine", "versions", "code")}
        about |= {"format": FORMAT_VERSION, "plan": plan.model_dump(mode="json"), **environment(plan)}
        about |= {MARK: str(study.path.resolve())}
        about.pop("resumed_by", None)
        write_checksummed(again.study, about)


def _prepare_data(study: StudyFolder, again: StudyFolder, plan: Plan, run: Run, on_progress: OnProgress) -> None:
    """Take the prepared data of the study if it is there; else prepare it from its source, and compare."""
    part = plan.for_cell(run.cell)
    there, here = study.data_of(plan.for_run(run), run.cell), again.data_of(plan.for_run(run), run.cell)
    if not here.exists() and is_intact(there):
        here.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(there, here)
    source = source_of(part)(part, here)
    if not is_intact(here):
        source.prepare(on_progress)
    cells = zip(cells_of(study.read()), plan.cell_plans(), strict=True)
    about = next(cell for cell, (_, values) in cells if values == run.cell)
    lines = []
    for kind, now in source.identity.items():
        # later versions describe data in more detail; what is left out of a folder is no part of its text
        names = [name for name in about[kind] if name in now and name != "left_out"]
        found = differences(*({name: side[name] for name in names} for side in (about[kind], now)))
        lines += [f"{kind}.{line}" for line in found]
    listed = "\n  ".join(lines)
    need(
        not lines,
        "a run must be trained again on the data that it was trained on",
        f"they differ:\n  {listed}",
        f"restore the {'text' if 'text' in source.identity else 'data'}, or the folder data of the study",
    )
