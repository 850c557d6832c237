"""Write the tables and decisions of the committed studies anew from their results: part of `.ci/pages.py`."""

from pathlib import Path

from ordinate.report.build import decision_json
from ordinate.report.read import load_study
from ordinate.report.summary import summarise
from ordinate.report.table import table_rows, to_csv

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in (ROOT / "studies").glob("*/study.json"))


def pages() -> dict[Path, str]:
    """Return the whole text of results.csv, costs.csv and decision.json of each committed study."""
    found = {}
    for folder in FOLDERS:
        study = load_study(folder)
        entries = summarise(study)
        parts = [({}, table_rows(study, entries))]
        mixers = bool(study.plan.get("mixers"))
        found[folder / "results.csv"] = to_csv(parts, mixers)
        found[folder / "costs.csv"] = to_csv(parts, mixers, costs=True)
        found[folder / "decision.json"] = decision_json(study, entries)
    return found
