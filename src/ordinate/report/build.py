"""From a study's folder, or that of a questioned model, to its report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ordinate.checks import need
from ordinate.files import write_text
from ordinate.report.findings import findings_page, read_findings
from ordinate.report.grid import Grid
from ordinate.report.page import page
from ordinate.report.read import read, read_about
from ordinate.report.summary import summarise
from ordinate.report.table import Row, as_csv, rows
from ordinate.report.verdict import verdict
from ordinate.study.run import described, slug


class Built(NamedTuple):
    """A report that was written.

    Args:
        path: where it is.
        verdict: what it says, sentence by sentence.
    """

    path: Path
    verdict: list[str]


def build(folder: Path) -> Built:
    """Write report.html, results.csv and costs.csv from the JSON files of a study.

    Raises:
        ValueError: the folder holds no study that this version can read.
    """
    about, report = read_about(folder), folder / "report.html"
    if "cells" in about:
        grid = Grid(folder, about)
        parts = [
            (values, rows(study, entries)) for (values, study), entries in zip(grid.cells, grid.ranked, strict=True)
        ]
        _write_tables(folder, parts, mixers=bool(grid.cells[0][1].plan.get("mixers")))
        write_text(report, grid.page())
        return Built(report, grid.verdict)
    study = read(folder)
    entries = summarise(study)
    table = rows(study, entries)
    _write_tables(folder, [({}, table)], mixers=bool(study.plan.get("mixers")))
    write_text(report, page(study, entries, table))
    return Built(report, verdict(study, entries))


def _write_tables(folder: Path, parts: Sequence[tuple[Mapping[str, Any], Sequence[Row]]], mixers: bool) -> None:
    """What was measured, the same on every machine of one kind, and apart from it what that cost."""
    write_text(folder / "results.csv", as_csv(parts, mixers))
    write_text(folder / "costs.csv", as_csv(parts, mixers, costs=True))


def build_cell(folder: Path, values: dict[str, str]) -> Path:
    """Write the whole report of one cell of a grid, with curves and samples, beside the grid's; where it is.

    Args:
        folder: of the study.
        values: of its factors, as they are written.

    Raises:
        ValueError: the folder holds no grid, or none with this cell.
    """
    about = read_about(folder)
    need("cells" in about, "a cell is of a grid", f"{folder} holds a study without one", "leave out --cell")
    grid = Grid(folder, about)
    found = [
        (study, entries)
        for (cell, study), entries in zip(grid.cells, grid.ranked, strict=True)
        if {name: str(value) for name, value in cell.items()} == values
    ]
    cells = "; ".join(described(cell) for cell, _ in grid.cells)
    need(bool(found), "a cell is named by the value of each factor", f"got {described(values)}", f"there are {cells}")
    (study, entries), report = (
        found[0],
        folder / f"report-{slug('-'.join(f'{k}={v}' for k, v in values.items()))}.html",
    )
    write_text(report, page(study, entries, rows(study, entries)))
    return report


def build_findings(folder: Path) -> Path:
    """Write report.html from the findings about a model; where the report is.

    Raises:
        ValueError: the folder holds no findings that this version can read.
    """
    report = folder / "report.html"
    write_text(report, findings_page(read_findings(folder)))
    return report
