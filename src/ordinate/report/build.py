"""Build the reports of a study, of one cell of a grid, and of a probed model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ordinate.core.atomic_files import write_text
from ordinate.core.checks import need
from ordinate.report.decision import decide
from ordinate.report.decision_card import DecisionCard, decision_html
from ordinate.report.findings import findings_page, read_findings
from ordinate.report.grid import GridReport
from ordinate.report.page import study_page
from ordinate.report.read import Study, load_manifest, load_study
from ordinate.report.side_by_side import side_by_side_page
from ordinate.report.summary import ArmSummary, summarise
from ordinate.report.table import TableRow, table_rows, to_csv
from ordinate.report.verdict import verdict
from ordinate.study.run import describe_cell, slug


class BuiltReport(NamedTuple):
    """A report that was written; in a notebook it shows its decision.

    Args:
        path: the HTML file.
        verdict: its verdict, sentence by sentence.
        card: the decision as text; None for a grid, which has one in each cell.
    """

    path: Path
    verdict: list[str]
    card: DecisionCard | None

    def lines(self, width: int) -> list[str]:
        """Return what a terminal of so many columns shows: the decision and warnings; of a grid, the verdict."""
        return self.card.lines(width) if self.card else [*self.verdict[:1], " ".join(self.verdict[1:])]

    def _repr_html_(self) -> str:
        return "" if self.card is None else decision_html(self.card)


def build_report(folder: Path) -> BuiltReport:
    """Write report.html, decision.json, results.csv and costs.csv from the JSON files of a study.

    Raises:
        ValueError: the folder has no study that this version can read.
    """
    about, report = load_manifest(folder), folder / "report.html"
    if "cells" in about:
        grid = GridReport(folder, about)
        parts = [
            (values, table_rows(study, entries))
            for (values, study), entries in zip(grid.cells, grid.ranked, strict=True)
        ]
        _write_tables(folder, parts, mixers=bool(grid.cells[0][1].plan.get("mixers")))
        write_text(report, grid.page())
        return BuiltReport(report, grid.verdict, None)
    study = load_study(folder)
    entries = summarise(study)
    table = table_rows(study, entries)
    _write_tables(folder, [({}, table)], mixers=bool(study.plan.get("mixers")))
    write_text(report, study_page(study, entries, table))
    write_text(folder / "decision.json", decision_json(study, entries))
    return BuiltReport(report, verdict(study, entries), DecisionCard.of(study, decide(study, entries)))


def decision_json(study: Study, entries: Sequence[ArmSummary]) -> str:
    """Return the decision as JSON, with numbers rounded to six digits."""
    rounded = json.loads(
        json.dumps(asdict(decide(study, entries))), parse_float=lambda text: float(f"{float(text):.6g}")
    )
    return json.dumps(rounded, indent=1, ensure_ascii=False) + "\n"


def build_side_by_side(folders: Sequence[Path], out: Path) -> BuiltReport:
    """Write a page that sets studies beside each other.

    Args:
        folders: the studies.
        out: the page.

    Raises:
        ValueError: a folder has no study that this version can read, or a grid; a folder is given twice.
    """
    names = [folder.resolve().name for folder in folders]
    need(
        len({folder.resolve() for folder in folders}) == len(folders),
        "each study is given once",
        f"got {names}",
        "leave one out",
    )
    studies = []
    for name, folder in zip(names, folders, strict=True):
        need(
            "cells" not in load_manifest(folder),
            "studies beside each other are without a grid",
            f"{folder} has one",
            "give the report of that folder alone",
        )
        studies.append((name if names.count(name) == 1 else str(folder), load_study(folder)))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, side_by_side_page(studies))
    said = [f"{name}: {decide(study, summarise(study)).answer}" for name, study in studies]
    return BuiltReport(out, said, None)


def _write_tables(folder: Path, parts: Sequence[tuple[Mapping[str, Any], Sequence[TableRow]]], mixers: bool) -> None:
    """Write results.csv, which is reproducible on equal hardware, and costs.csv, which is not."""
    write_text(folder / "results.csv", to_csv(parts, mixers))
    write_text(folder / "costs.csv", to_csv(parts, mixers, costs=True))


def build_cell(folder: Path, values: dict[str, str]) -> Path:
    """Write the full report of one cell of a grid, with charts and samples, next to that of the grid.

    Args:
        folder: the folder of the study.
        values: the value of each factor, as text.

    Returns:
        The path of the report.

    Raises:
        ValueError: the folder has no grid, or the grid no such cell.
    """
    about = load_manifest(folder)
    need("cells" in about, "--cell needs a grid", f"{folder} has a study without one", "leave out --cell")
    grid = GridReport(folder, about)
    found = [
        (study, entries)
        for (cell, study), entries in zip(grid.cells, grid.ranked, strict=True)
        if {name: str(value) for name, value in cell.items()} == values
    ]
    cells = "; ".join(describe_cell(cell) for cell, _ in grid.cells)
    need(
        bool(found),
        "--cell needs the value of each factor",
        f"got {describe_cell(values)}",
        f"the cells are: {cells}",
    )
    (study, entries), report = (
        found[0],
        folder / f"report-{slug('-'.join(f'{k}={v}' for k, v in values.items()))}.html",
    )
    write_text(report, study_page(study, entries, table_rows(study, entries)))
    return report


def build_findings(folder: Path) -> Path:
    """Write report.html from the findings about a model, and return its path.

    Raises:
        ValueError: the folder has no findings that this version can read.
    """
    report = folder / "report.html"
    write_text(report, findings_page(read_findings(folder)))
    return report
