"""`ordinate status`: how far a study is, from another terminal."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cyclopts import App
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ordinate.cli.progress import STYLES
from ordinate.lock import occupied, owner_of
from ordinate.study.folder import Folder
from ordinate.study.follow import Standing, standings
from ordinate.study.plan import Plan

app = App(name="status", help="Say how far a study is, from another terminal.")
# seconds between two looks
EVERY = 2.0
# more runs than this are not all shown, and first of all not those that are done or have not begun
SHOWN, SETTLED = 100, ("done", "pending")


@app.default
def status(folder: Path, *, watch: bool = False) -> int:
    """Say how far a study is: state, step, loss and time left of every run.

    Parameters
    ----------
    folder
        The study's folder.
    watch
        Look again every two seconds, until nobody is at work there.
    """
    found = Folder(folder)
    if not found.study.exists():
        raise ValueError(f"status needs a study's folder; {folder} has no study.json; check the path")
    console, plan = Console(highlight=False), found.plan()
    rows = standings(found, plan)
    if not watch:
        console.print(picture(found, plan, rows))
        return 0
    with Live(picture(found, plan, rows), console=console, auto_refresh=False) as live:
        at_work = True
        while at_work:
            time.sleep(EVERY)
            at_work, rows = occupied(folder), standings(found, plan, rows)
            live.update(picture(found, plan, rows), refresh=True)
    return 0


def picture(folder: Folder, plan: Plan, found: Sequence[Standing]) -> Group:
    """The runs as a table, and a line that sums up; of many runs those that something is to be told of."""
    table = Table(box=None, pad_edge=False)
    for name, side in (("run", "left"), ("state", "left"), ("step", "right"), ("loss", "right"), ("left", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    telling = [row for row in found if row.stage not in SETTLED] if len(found) > SHOWN else found
    for row in telling[:SHOWN]:
        loss = "" if row.loss is None else f"{row.loss:.3f}"
        stage = Text(row.stage, style=STYLES.get(row.stage, ""))
        table.add_row(Text(row.run.name), stage, f"{row.step}/{row.steps}", loss, _time(row.left))
    rest = len(found) - len(telling[:SHOWN])
    return Group(table, *([Text(f"and {rest} more")] if rest else []), Text(_summary(folder, found)))


def _summary(folder: Folder, found: Sequence[Standing]) -> str:
    counts = Counter(row.stage for row in found)
    said = ", ".join(f"{count} {stage}" for stage, count in counts.items())
    who = f"{owner_of(folder.path)} is at work" if occupied(folder.path) else "nobody is at work"
    return f"{len(found)} runs: {said}; {who}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
