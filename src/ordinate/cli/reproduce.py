"""`ordinate reproduce`: train a run of a finished study again, and compare."""

from pathlib import Path

from cyclopts import App

from ordinate.cli.console import SafeConsole
from ordinate.cli.progress import console_progress
from ordinate.core.checks import need_seed
from ordinate.core.output_folder import check_output_folder
from ordinate.report.read import load_manifest
from ordinate.report.reproduction import compare
from ordinate.study.run import FINAL_STATES

app = App(name="reproduce", help="Train a run of a finished study again, and compare the results.")
STYLES = {"bit": "bold green", "close": "bold green", "different": "bold red"}


@app.default
def reproduce(
    study: Path, *, run: str | None = None, seed: int = 0, steps: int | None = None, out: Path | None = None
) -> int:
    """Train a run of a finished study again, from its text to its result, and compare the results.

    With the same code, versions, processor and threads they must be equal to the bit; otherwise within a tolerance.
    Exit code 0: reproduced; 1: not reproduced; 2: not comparable.

    Parameters
    ----------
    study
        The study's folder; its results suffice. It is only read.
    run
        Name of the run (the name of its folder in STUDY/runs); by default one chosen at random.
    seed
        Random seed of that choice.
    steps
        Train the first steps only, and compare their losses: a quick check.
    out
        Folder to train in; by default one in runs/. An interrupted training resumes there.
    """
    from ordinate.study.manifest import run_provenance
    from ordinate.study.reproduction import sample_run, train_again
    from ordinate.study.study_folder import StudyFolder

    need_seed(seed)
    console, folder = SafeConsole(), StudyFolder(study)
    about = load_manifest(study)
    chosen, stored = sample_run(folder, run, seed, FINAL_STATES if steps is None else ("done",))
    plan = folder.plan().for_run(chosen)
    place = out or Path("runs") / f"reproduce-{study.resolve().name}-{chosen.name}"
    check_output_folder(place, ())
    display = console_progress(console)
    try:
        made = train_again(folder, chosen, stored, place, display.on_progress, steps)
    finally:
        display.close()
    now = made.result.get("provenance") or run_provenance(plan, made.folder.threads())
    found = compare(about, plan.model_dump(mode="json"), stored, made.result, now, steps)
    console.print(f"{chosen.name}: {found.answer}", style=STYLES[found.outcome], markup=False, soft_wrap=True)
    for line in found.details:
        console.print(f"  {line}", markup=False, soft_wrap=True)
    console.print(f"trained in: {made.folder.run(chosen)}", soft_wrap=True)
    return 1 if found.outcome == "different" else 0
