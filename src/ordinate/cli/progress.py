"""How far a study is, for people: a bar for each run, or plain lines where there is no terminal."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ordinate.study.engine import News
from ordinate.study.plan import Plan, Run
from ordinate.study.state import STATES

STYLES = {
    "done": "green",
    "diverged": "red",
    "failed": "bold red",
    "oom": "bold red",
    "killed": "bold red",
    "measuring": "cyan",
}
# bars of runs that are over
KEPT = 24


class Bars:
    """A bar for each run with its loss and the time left.

    Args:
        console: where to draw.
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

    def reading(self, what: str) -> None:
        """Say what is being read."""
        self.console.print(f"reading {what}", markup=False)

    def planned(self, plan: Plan, todo: int) -> None:
        """Say what is to do, and begin to draw."""
        self.console.print(said(plan, todo) if todo else f"all {len(plan.runs())} runs are done")
        self.plan = plan
        if todo:
            self.progress.start()

    def news(self, news: News) -> None:
        """Move a bar."""
        bar = self._bar(news.run)
        style = STYLES.get(news.stage, "")
        stage = f"[{style}]{news.stage}[/]" if style else news.stage
        self.progress.update(bar, stage=stage)
        if news.loss is not None:
            self.progress.update(bar, completed=news.step, loss=f"loss {news.loss:.3f}")
        if news.message:
            self.progress.console.print(f"{news.run.title}: {news.stage}\n{news.message}", markup=False)
        if news.stage == "done":
            self.progress.stop_task(bar)
        if news.stage in STATES:
            self._settle(bar)

    def close(self) -> None:
        """Stop drawing."""
        self.progress.stop()

    def _settle(self, bar: TaskID) -> None:
        """Keep the last bars of runs that are over: a terminal has no room for thousands."""
        self.over.append(bar)
        if len(self.over) > KEPT:
            self.progress.remove_task(self.over.pop(0))

    def _bar(self, run: Run) -> TaskID:
        if run.name not in self.bars:
            label = run.title.removesuffix(" seed 0")
            total = self.plan.of(run).steps
            self.bars[run.name] = self.progress.add_task(label, total=total, loss="", stage="")
        return self.bars[run.name]


class Lines:
    """A line now and then.

    Args:
        console: where to print.
        every: seconds between two lines of a run.
    """

    def __init__(self, console: Console, every: float = 10.0) -> None:
        self.console, self.every = console, every
        self.last: dict[str, tuple[float, str]] = {}

    def reading(self, what: str) -> None:
        """Say what is being read."""
        self._print(f"reading {what}")

    def planned(self, plan: Plan, todo: int) -> None:
        """Say what is to do."""
        self.plan = plan
        self._print(said(plan, todo))

    def news(self, news: News) -> None:
        """Print a line when a run enters a stage, and every few seconds."""
        now = time.monotonic()
        before, stage = self.last.get(news.run.name, (0.0, ""))
        if news.stage == stage and now - before < self.every:
            return
        self.last[news.run.name] = (now, news.stage)
        loss = "" if news.loss is None else f"  step {news.step}/{self.plan.of(news.run).steps}  loss {news.loss:.3f}"
        self._print(f"{news.run.name}  {news.stage}{loss}" + (f"\n{news.message}" if news.message else ""))

    def close(self) -> None:
        """Nothing is left open."""

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


def said(plan: Plan, todo: int) -> str:
    """How many runs there are, and of how many steps."""
    runs = plan.runs()
    steps = sorted({plan.of(run).steps for run in runs})
    of = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{count} of {of} steps; {todo} to do"


def watcher(console: Console) -> Bars | Lines:
    """Bars on a terminal, lines elsewhere."""
    return Bars(console) if console.is_terminal else Lines(console)
