"""`ordinate report`: build the report of a study again."""

from pathlib import Path

from cyclopts import App
from rich.console import Console

from ordinate.report.build import build

app = App(name="report", help="Build the report of a study again from its results.")


@app.default
def report(folder: Path) -> int:
    """Build report.html and results.csv of a study again, from its JSON files alone.

    Parameters
    ----------
    folder
        The folder of a study.
    """
    Console(highlight=False).print(f"report: {build(folder)}", soft_wrap=True)
    return 0
