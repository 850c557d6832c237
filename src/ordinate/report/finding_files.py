"""The files of a finding: its page, its tables and its charts."""

from collections.abc import Mapping
from pathlib import Path

from ordinate.core.atomic_files import write_text
from ordinate.core.finding import Finding, Table
from ordinate.core.output_folder import check_output_folder
from ordinate.core.table_export import save_table
from ordinate.report.finding_page import chart_svg


def save_finding(
    finding: Finding, folder: str | Path, name: str, page: str, tables: Mapping[str, Table], ending: str
) -> list[Path]:
    """Write a finding to a folder; return the files, the page first.

    Args:
        finding: the finding, whose charts are drawn as SVG.
        folder: the folder; it is made.
        name: name of the page.
        page: the page.
        tables: the tables by the name of their file.
        ending: format of the tables: .csv or .parquet.

    Raises:
        ValueError: the folder cannot be written to, or an unknown ending.
    """
    folder = Path(folder)
    check_output_folder(folder, (".html", ".svg", ending))
    folder.mkdir(parents=True, exist_ok=True)
    files = [save_table(table, folder / f"{title}{ending}") for title, table in tables.items()]
    drawn = {folder / f"{name}.html": page}
    drawn |= {folder / f"{chart.title.lower().replace(' ', '_')}.svg": chart_svg(chart) for chart in finding.charts}
    for path, text in drawn.items():
        write_text(path, text)
    return [*drawn, *files]
