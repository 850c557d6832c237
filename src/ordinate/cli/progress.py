"""Progress of runs and probes on the console: a bar for each on a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping
from types import MappingProxyType

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import Progress as ProgressDisplay
from rich.text import Text

from ordinate.cli.pace import Pace, format_clock, format_left
from ordinate.core.progress import Progress
from ordinate.study.run import STATES

STYLES = {
    "done": "green",
    "measured": "green",
    "measuring": "cyan",
    "already done": "cyan",
    "skipped": "yellow",
    "diverged": "red",
    "failed": "bold red",
    "oom": "bold red",
    "killed": "bold red",
}
# stages after which a run or a probe does not progress
FINAL_STAGES = (*STATES, "measured", "skipped", "already done")
# bars kept of finished items
MAX_FINISHED_BARS = 24
NO_TITLES: Mapping[str, str] = MappingProxyType({})


class AmountColumn(ProgressColumn):
    """The amount done: steps of all steps, or a percentage."""

    def render(self, task: Task) -> Text:
        """Return the text of one bar; empty while the total is unknown."""
        return Text("" if task.total is None else _amount(task.completed, task.total).removeprefix("step "))


class TimeColumn(ProgressColumn):
    """The remaining time; empty before there is an estimate. Of a finished item the time that it took."""

    def render(self, task: Task) -> Text:
        """Return the text of one bar."""
        if task.finished_time is not None or task.stop_time is not None:
            return Text(format_clock(task.elapsed or 0.0), style="progress.elapsed")
        left = task.fields["pace"].seconds_left(time.monotonic())
        return Text("" if left is None else format_left(left), style="progress.remaining")


class ProgressBars:
    """A progress bar for each item, with its loss, stage and remaining time.

    Args:
        console: console to draw on.
        titles: titles of items, by name; an item without one is shown by its name.
    """

    def __init__(self, console: Console, titles: Mapping[str, str] = NO_TITLES) -> None:
        self.console, self.titles = console, titles
        self.display = ProgressDisplay(
            # the name of a folder may hold what looks like markup
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            AmountColumn(),
            TextColumn("{task.fields[loss]}"),
            TextColumn("{task.fields[stage]}"),
            TimeColumn(),
            console=console,
            expand=True,
        )
        self.bars: dict[str, TaskID] = {}
        self.paces: dict[str, Pace] = {}
        self.finished: list[TaskID] = []

    def on_progress(self, progress: Progress) -> None:
        """Update the bar of an item, and print the message."""
        title, stage = self.titles.get(progress.item, progress.item), progress.stage
        if progress.item:
            self._update(progress, title)
        if progress.message:
            name = (title, STYLES.get(stage, ""))
            line = (name, f" {stage}: ", progress.message) if progress.item else (progress.message,)
            self.console.print(Text.assemble(*line), soft_wrap=True)

    def close(self) -> None:
        """Stop drawing and leave the bars on the terminal as they are."""
        self.display.stop()

    def _update(self, progress: Progress, title: str) -> None:
        if progress.item not in self.bars:
            self.display.start()
            pace = self.paces[progress.item] = Pace()
            fields = {"loss": "", "stage": "", "pace": pace}
            self.bars[progress.item] = self.display.add_task(title, total=progress.total, **fields)
        bar, stage = self.bars[progress.item], progress.stage
        self.display.update(bar, total=progress.total, completed=progress.done)
        if progress.done is not None and progress.total:
            self.paces[progress.item].update(progress.done, progress.total, time.monotonic())
        if progress.loss is not None:
            self.display.update(bar, loss=f"loss {progress.loss:.3f}")
        if stage:
            self.display.update(bar, stage=f"[{STYLES[stage]}]{stage}[/]" if STYLES.get(stage) else stage)
        if stage in FINAL_STAGES:
            self._finish(bar)

    def _finish(self, bar: TaskID) -> None:
        """Remove the oldest bar of finished items above the limit: a terminal has no room for thousands."""
        self.display.stop_task(bar)
        self.finished.append(bar)
        if len(self.finished) > MAX_FINISHED_BARS:
            self.display.remove_task(self.finished.pop(0))


class ProgressLines:
    """Plain progress lines, for logs and pipes.

    Args:
        console: console to print on.
        every: least time between two lines of an item in one stage [seconds].
    """

    def __init__(self, console: Console, every: float = 10.0) -> None:
        self.console, self.every = console, every
        self.last: dict[str, tuple[float, str]] = {}
        self.paces: dict[str, Pace] = {}

    def on_progress(self, progress: Progress) -> None:
        """Print a message, and a line when an item changes its stage and every few seconds."""
        if not progress.item:
            if progress.message:
                self._print(progress.message)
            return
        now, pace = time.monotonic(), self.paces.setdefault(progress.item, Pace())
        if progress.done is not None and progress.total:
            pace.update(progress.done, progress.total, now)
        before, last_stage = self.last.get(progress.item, (0.0, ""))
        stage = progress.stage or last_stage
        if stage == last_stage and now - before < self.every:
            return
        self.last[progress.item] = (now, stage)
        parts = [progress.item, stage]
        if progress.done is not None and progress.total and stage not in FINAL_STAGES:
            parts.append(_amount(progress.done, progress.total))
            left = pace.seconds_left(now) if progress.done < progress.total else None
            parts += [] if left is None else [format_left(left)]
        if progress.loss is not None:
            parts.append(f"loss {progress.loss:.3f}")
        self._print("  ".join(parts) + (f": {progress.message}" if progress.message else ""))

    def close(self) -> None:
        """Do nothing: lines need no clean-up."""

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


def console_progress(console: Console, titles: Mapping[str, str] = NO_TITLES) -> ProgressBars | ProgressLines:
    """Return progress bars on a terminal, plain lines elsewhere.

    Args:
        console: console to draw on.
        titles: titles of items, by name; lines show the names.
    """
    return ProgressBars(console, titles) if console.is_terminal else ProgressLines(console)


def _amount(done: float, total: float) -> str:
    """Format an amount: a fraction as a percentage, steps as step 5/10."""
    return f"{done:.0%}" if total == 1 else f"step {done:.0f}/{total:.0f}"
