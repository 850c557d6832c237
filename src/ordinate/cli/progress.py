"""Progress of a study on the console: a bar for each run, or plain lines without a terminal."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ordinate.study.executor import RunUpdate
from ordinate.study.plan import Plan, Run
from ordinate.study.run import STATES

STYLES = {
    "done": "green",
    "diverged": "red",
    "failed": "bold red",
    "oom": "bold red",
    "killed": "bold red",
    "measuring": "cyan",
}
# bars kept of finished runs
MAX_FINISHED_BARS = 24


class ProgressBars:
    """A progress bar for each run, with its loss and remaining time.

    Args:
        console: console to draw on.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[loss]}"),
            TextColumn("{task.fields[stage]}"),
            TimeRemainingColumn(),
            console=console,
            expand=True,
        )
        self.bars: dict[str, TaskID] = {}
        self.over: list[TaskID] = []

    def on_reading(self, what: str) -> None:
        """Print what is being read."""
        self.console.print(f"reading {what}", markup=False)

    def on_planned(self, plan: Plan, todo: int) -> None:
        """Print the number of runs, and start drawing."""
        self.console.print(plan_summary(plan, todo) if todo else f"all {len(plan.runs())} runs are done")
        self.plan = plan
        if todo:
            self.progress.start()

    def on_update(self, update: RunUpdate) -> None:
        """Update the bar of a run."""
        bar = self._bar(update.run)
        style = STYLES.get(update.stage, "")
        stage = f"[{style}]{update.stage}[/]" if style else update.stage
        self.progress.update(bar, stage=stage)
        if update.loss is not None:
            self.progress.update(bar, completed=update.step, loss=f"loss {update.loss:.3f}")
        if update.message:
            self.progress.console.print(f"{update.run.title}: {update.stage}\n{update.message}", markup=False)
        if update.stage == "done":
            self.progress.stop_task(bar)
        if update.stage in STATES:
            self._settle(bar)

    def close(self) -> None:
        """Stop drawing."""
        self.progress.stop()

    def _settle(self, bar: TaskID) -> None:
        """Remove the oldest bar of finished runs above the limit: a terminal has no room for thousands."""
        self.over.append(bar)
        if len(self.over) > MAX_FINISHED_BARS:
            self.progress.remove_task(self.over.pop(0))

    def _bar(self, run: Run) -> TaskID:
        if run.name not in self.bars:
            label = run.title.removesuffix(" seed 0")
            total = self.plan.for_run(run).steps
            self.bars[run.name] = self.progress.add_task(label, total=total, loss="", stage="")
        return self.bars[run.name]


class ProgressLines:
    """Plain progress lines, for logs and pipes.

    Args:
        console: console to print on.
        every: least time between two lines of a run [seconds].
    """

    def __init__(self, console: Console, every: float = 10.0) -> None:
        self.console, self.every = console, every
        self.last: dict[str, tuple[float, str]] = {}

    def on_reading(self, what: str) -> None:
        """Print what is being read."""
        self._print(f"reading {what}")

    def on_planned(self, plan: Plan, todo: int) -> None:
        """Print the number of runs."""
        self.plan = plan
        self._print(plan_summary(plan, todo))

    def on_update(self, update: RunUpdate) -> None:
        """Print a line when a run changes its stage, and every few seconds."""
        now = time.monotonic()
        before, stage = self.last.get(update.run.name, (0.0, ""))
        if update.stage == stage and now - before < self.every:
            return
        self.last[update.run.name] = (now, update.stage)
        loss = (
            ""
            if update.loss is None
            else f"  step {update.step}/{self.plan.for_run(update.run).steps}  loss {update.loss:.3f}"
        )
        self._print(f"{update.run.name}  {update.stage}{loss}" + (f"\n{update.message}" if update.message else ""))

    def close(self) -> None:
        """Do nothing: lines need no clean-up."""

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


def plan_summary(plan: Plan, todo: int) -> str:
    """Summary of a plan: number of runs, their steps, and how many runs remain."""
    runs = plan.runs()
    steps = sorted({plan.for_run(run).steps for run in runs})
    of = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{count} of {of} steps; {todo} to do"


def console_progress(console: Console) -> ProgressBars | ProgressLines:
    """Progress bars on a terminal, plain lines elsewhere."""
    return ProgressBars(console) if console.is_terminal else ProgressLines(console)
