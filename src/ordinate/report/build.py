"""From a study's folder, or that of a questioned model, to its report."""

from pathlib import Path

from ordinate.files import write_text
from ordinate.report.findings import findings_page, read_findings
from ordinate.report.page import page
from ordinate.report.read import read
from ordinate.report.summary import summarise
from ordinate.report.table import as_csv, rows


def build(folder: Path) -> Path:
    """Write report.html and results.csv from the JSON files of a study; where the report is.

    Raises:
        ValueError: the folder holds no study that this version can read.
    """
    study = read(folder)
    entries = summarise(study)
    table = rows(study, entries)
    write_text(folder / "results.csv", as_csv(table, mixers=bool(study.plan.get("mixers"))))
    report = folder / "report.html"
    write_text(report, page(study, entries, table))
    return report


def build_findings(folder: Path) -> Path:
    """Write report.html from the findings about a model; where the report is.

    Raises:
        ValueError: the folder holds no findings that this version can read.
    """
    report = folder / "report.html"
    write_text(report, findings_page(read_findings(folder)))
    return report
