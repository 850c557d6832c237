"""`ordinate report`: build a report again."""

from pathlib import Path

from cyclopts import App
from rich.console import Console

from ordinate.report.build import build, build_findings

app = App(name="report", help="Build the report of a study or a probed model again from its results.")


@app.default
def report(folder: Path) -> int:
    """Build the report of a study or of a probed model again, from its JSON files alone.

    Parameters
    ----------
    folder
        The folder of a study, or of a probed model.
    """
    make = build_findings if (folder / "subject.json").is_file() else build
    Console(highlight=False).print(f"report: {make(folder)}", soft_wrap=True)
    return 0
