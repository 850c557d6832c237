"""`ordinate status`: show the progress of a study, from another terminal."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cyclopts import App
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ordinate.cli.console import SafeConsole
from ordinate.cli.pace import format_clock
from ordinate.cli.progress import STYLES
from ordinate.core.folder_lock import describe_owner, is_locked
from ordinate.core.output_folder import nearest_folder
from ordinate.study.plan import Plan
from ordinate.study.run_progress import RunProgress, study_progress
from ordinate.study.study_folder import StudyFolder

app = App(name="status", help="Show the progress of a study, from another terminal.")
# seconds between two refreshes
REFRESH_SECONDS = 2.0
# most rows in the table; above this, runs that are done or pending are left out
MAX_ROWS, HIDDEN_STATES = 100, ("done", "pending")


@app.default
def status(folder: Path, *, watch: bool = False) -> int:
    """Show the progress of a study: state, step, loss and remaining time of every run.

    Parameters
    ----------
    folder
        The study's folder.
    watch
        Refresh every two seconds, until no process is working there.
    """
    found = StudyFolder(folder)
    if not found.study.exists():
        remedy = nearest_folder(folder, "check the path")
        raise ValueError(f"status needs a study's folder; {folder} has no study.json; {remedy}")
    console, plan = SafeConsole(), found.plan()
    rows = study_progress(found, plan)
    if not watch:
        console.print(progress_table(found, plan, rows))
        return 0
    with Live(progress_table(found, plan, rows), console=console, auto_refresh=False) as live:
        at_work = True
        while at_work:
            time.sleep(REFRESH_SECONDS)
            at_work, rows = is_locked(folder), study_progress(found, plan, rows)
            live.update(progress_table(found, plan, rows), refresh=True)
    return 0


def progress_table(folder: StudyFolder, plan: Plan, found: Sequence[RunProgress]) -> Group:
    """Table of the runs and a summary line; of many runs only those that are running or unsuccessful."""
    table = Table(box=None, pad_edge=False)
    for name, side in (("run", "left"), ("state", "left"), ("step", "right"), ("loss", "right"), ("left", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    telling = [row for row in found if row.stage not in HIDDEN_STATES] if len(found) > MAX_ROWS else found
    for row in telling[:MAX_ROWS]:
        loss = "" if row.loss is None else f"{row.loss:.3f}"
        left = "" if row.seconds_left is None else format_clock(row.seconds_left)
        stage = Text(row.stage, style=STYLES.get(row.stage, ""))
        table.add_row(Text(row.run.name), stage, f"{row.step}/{row.steps}", loss, left)
    rest = len(found) - len(telling[:MAX_ROWS])
    return Group(table, *([Text(f"and {rest} more")] if rest else []), Text(_summary(folder, found)))


def _summary(folder: StudyFolder, found: Sequence[RunProgress]) -> str:
    counts = Counter(row.stage for row in found)
    states = ", ".join(f"{count} {stage}" for stage, count in counts.items())
    owner = f"{describe_owner(folder.path)} is working" if is_locked(folder.path) else "no process is working"
    return f"{len(found)} runs: {states}; {owner}"
