"""`ordinate report`: rebuild a report."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ordinate.cli.console import SafeConsole
from ordinate.core.checks import need
from ordinate.report.build import build_cell, build_findings, build_report

app = App(name="report", help="Rebuild the report of a study or a probed model from its results.")


@app.default
def report(
    folder: Path, *, cell: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = ()
) -> int:
    """Rebuild the report of a study or of a probed model from its JSON files.

    Parameters
    ----------
    folder
        The folder of a study, or of a probed model.
    cell
        For a grid: the value of each factor, to write the full report of that cell: `--cell width=64 length=128`.
    """
    console = SafeConsole()
    if cell:
        made = build_cell(folder, dict(_value(text) for text in cell))
    elif (folder / "subject.json").is_file():
        made = build_findings(folder)
    else:
        made, verdict = build_report(folder)
        console.print("\n".join([*verdict[:1], " ".join(verdict[1:])]), markup=False)
    console.print(f"report: {made}", soft_wrap=True)
    return 0


def _value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    need(bool(name and equals), "--cell needs name=value", f"got {text!r}", "for example --cell width=64")
    return name, value
