"""`ordinate report`: rebuild a report, or set studies beside each other."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ordinate.cli.console import SafeConsole
from ordinate.core.checks import need
from ordinate.core.output_folder import check_output_file
from ordinate.report.build import build_cell, build_findings, build_report, build_side_by_side
from ordinate.report.findings import read_findings

app = App(name="report", help="Rebuild the report of a study or a probed model from its results, or compare studies.")


@app.default
def report(
    folder: Path,
    /,
    *others: Path,
    cell: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    out: Path | None = None,
) -> int:
    """Rebuild the report of a study or of a probed model from its JSON files.

    Parameters
    ----------
    folder
        The folder of a study, or of a probed model.
    others
        Further studies: one page then shows the decisions of all of them, and one table.
    cell
        For a grid: the value of each factor, to write the full report of that cell: `--cell width=64 length=128`.
    out
        The page to write for several studies. Default: side-by-side.html.
    """
    console, page = SafeConsole(), out or Path("side-by-side.html")
    one = "--out is the page of several studies; that of one is report.html in its folder"
    need(bool(others) or out is None, one, f"got {folder} alone", "leave --out out, or give more studies")
    if others:
        need(not cell, "--cell is for one grid", f"got {1 + len(others)} studies", "give one folder, or no --cell")
        check_output_file(page, "--out")
        built = build_side_by_side([folder, *others], page)
        console.print("\n".join(built.verdict), markup=False)
        made = built.path
    elif cell:
        made = build_cell(folder, dict(_value(text) for text in cell))
    elif (folder / "subject.json").is_file():
        made, damaged = build_findings(folder), read_findings(folder).damaged
        for name, said in damaged.items():
            console.print(f"{name}: {said}", markup=False, soft_wrap=True)
    else:
        built = build_report(folder)
        made = built.path
        console.print("\n".join(built.lines(console.width)), markup=False)
    console.print(f"report: {made}", soft_wrap=True)
    return 0


def _value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    need(bool(name and equals), "--cell needs name=value", f"got {text!r}", "for example --cell width=64")
    return name, value
