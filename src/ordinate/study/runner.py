"""Run a study: check the plan, prepare the data, carry out the runs that have no result yet."""

from collections.abc import Collection
from pathlib import Path
from statistics import mean
from typing import Any

from ordinate.core.atomic_files import write_checksummed
from ordinate.core.progress import OnProgress, Progress, ignore
from ordinate.data.dataset_folder import keep_previous_data
from ordinate.study.executor import Executor
from ordinate.study.leaders import LEADERS, leading_arms
from ordinate.study.plan import Plan
from ordinate.study.run import Run
from ordinate.study.study_folder import StudyFolder
from ordinate.study.thread_autotuning import ThreadChoice


def run_study(
    plan: Plan,
    out: Path,
    executor: Executor,
    command: str,
    on_progress: OnProgress,
    *,
    allow_changed_code: bool = False,
) -> StudyFolder:
    """Carry out the runs of a resolved plan that have no final result yet, in the folder `out`.

    The leading schemes or mixers are chosen once the first seeds have ended; their further seeds follow.

    Args:
        plan: the resolved plan.
        out: the study's folder; new, empty, or of the same plan.
        executor: the executor of the runs.
        command: command line of the study, recorded for the report.
        on_progress: receives messages about the data (stage reading); the number of runs done and in all once the
            plan is final, before the first run starts (stage planned); then the progress of each run.
        allow_changed_code: whether missing runs may be made by other code or versions than those before.

    Raises:
        OtherStudyError: the folder holds another study, or one begun by other code or versions.
        FolderLockedError: another process is working in the folder.
        ValueError: the training data is empty, unreadable, or too small.
    """
    folder = StudyFolder(out)
    folder.check(plan := folder.resumed(plan))
    with folder.lock():
        # repeated under the lock: another process may have written the folder since the first check
        folder.check(plan := folder.resumed(plan))
        plan = folder.with_leaders(plan)
        # a study that is refused because its text has changed keeps the data that its runs were trained on
        with keep_previous_data():
            sources = _prepare_data(plan, folder, on_progress)
            todo = folder.missing(plan)
            if folder.study.exists() and todo:
                folder.check_provenance(allow_changed_code)
            folder.open(plan, sources[0], command, *sources[1:])
        for line in folder.damaged(todo):
            on_progress(Progress(message=f"trained again: {line}"))
        if todo and not folder.threads_file.exists():
            write_checksummed(folder.threads_file, executor.choose_threads(folder, plan, todo, on_progress).as_record)
        _carry_out(plan, folder, executor, todo, on_progress)
        if plan.leader_seeds:
            tried = {run.name for run in plan.runs()}
            plan = plan.model_copy(update={"leaders": leading_arms(folder, plan)})
            # those of the first seeds that did not succeed are tried again when the command is repeated
            if todo := [run for run in folder.missing(plan) if run.name not in tried]:
                folder.check_provenance(allow_changed_code)
                folder.write_leaders(plan)
                on_progress(Progress(message=f"trained with another seed: {', '.join(plan.leaders)}"))
                _carry_out(plan, folder, executor, todo, on_progress)
    return folder


def _prepare_data(plan: Plan, folder: StudyFolder, on_progress: OnProgress) -> list[dict[str, Any]]:
    """Prepare the training data of every cell, and return what identifies each."""
    from ordinate.study.data_source import source_of

    sources, ready = [], set()
    for part, values in plan.cell_plans():
        data = folder.data_of(part, values)
        source = source_of(part)(part, data)
        # cells that share a data folder announce its preparation once
        source.prepare(ignore if data in ready else on_progress)
        ready.add(data)
        sources.append(source.identity)
    return sources


def _carry_out(
    plan: Plan, folder: StudyFolder, executor: Executor, todo: Collection[Run], on_progress: OnProgress
) -> None:
    """Announce the plan, and carry out these runs, one stage after another."""
    on_progress(_planned(plan, todo, ThreadChoice.read(folder)))
    missing = {run.name for run in todo}
    for stage in plan.stages():
        executor.run_all(folder, plan, [run for run in stage if run.name in missing], on_progress)


def _planned(plan: Plan, todo: Collection[Run], choice: ThreadChoice | None) -> Progress:
    """Return the event that the plan is final: its number of runs, their steps, how many remain, and how long."""
    runs = plan.runs()
    steps = sorted({plan.for_run(run).steps for run in runs})
    of = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    message = f"{count} of {of} steps; {len(todo)} to do"
    more = 0 if plan.leaders else plan.leader_seeds or 0
    if more:
        message += f"; then {LEADERS} to {2 * LEADERS} more, of the leading ones with another seed"
    if todo and choice and choice.speed:
        # of further runs the number between the fewest and the most, each as long as the average run
        further = 1.5 * LEADERS * more * mean(plan.for_run(run).steps for run in runs)
        seconds = (further + sum(plan.for_run(run).steps for run in todo)) / choice.speed
        with_those = " with those" if more else ""
        message += f"; training{with_those} takes about {_duration(seconds)} here, before evaluation"
        message += f" (measured: {choice.speed:.1f} steps a second)"
    return Progress(stage="planned", done=len(runs) - len(todo), total=len(runs), message=message)


def _duration(seconds: float) -> str:
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.{0 if seconds >= 10 * size or unit == 'minutes' else 1}f} {unit}"
    return f"{max(1.0, seconds):.0f} seconds"
