"""Write the tables and decisions of the committed studies anew from their results: part of `.ci/pages.py`."""

from pathlib import Path

from ordinate.report.build import decision_json
from ordinate.report.grid import GridReport
from ordinate.report.read import load_manifest, load_study
from ordinate.report.summary import summarise
from ordinate.report.table import table_rows, to_csv

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in (ROOT / "studies").glob("*/study.json"))


def pages() -> dict[Path, str]:
    """Return the text of results.csv, costs.csv and decision.json of each study; a grid has no single decision."""
    found = {}
    for folder in FOLDERS:
        about = load_manifest(folder)
        if "cells" in about:
            grid = GridReport(folder, about)
            cells = zip(grid.cells, grid.ranked, strict=True)
            parts = [(values, table_rows(study, entries)) for (values, study), entries in cells]
        else:
            study = load_study(folder)
            entries = summarise(study)
            parts = [({}, table_rows(study, entries))]
            found[folder / "decision.json"] = decision_json(study, entries)
        mixers = bool(about["plan"].get("mixers"))
        found[folder / "results.csv"] = to_csv(parts, mixers)
        found[folder / "costs.csv"] = to_csv(parts, mixers, costs=True)
    return found
