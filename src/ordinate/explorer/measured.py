"""Numbers and charts of committed results that the page cites, in `measured.json` of this package.

The results themselves are in the repository, not in an installation.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.explorer._panel import Citation, Number, Panel

FILE = "measured.json"
PANELS = "ordinate.explorer.panels"
Record = Mapping[str, Mapping[str, Any]]


def panels() -> list[tuple[str, Panel]]:
    """Return all panels with their names, in their order."""
    found = [(name, catalog.load(PANELS, Panel, name)()) for name in catalog.names(PANELS)]
    return sorted(found, key=lambda pair: pair[1].place)


def collect(root: Path) -> Record:
    """Read everything that panels cite from the results of a repository.

    Raises:
        ValueError: a file has no number or chart of this name.
    """
    shown = [panel for _, panel in panels()]
    numbers = {panel.cited.key: vars(read_number(root, panel.cited)) for panel in shown}
    charts = {cited.key: _chart(root, cited) for panel in shown for cited in panel.charts}
    return {"numbers": numbers, "charts": charts}


def load() -> Record:
    """Return what `collect` has written."""
    return json.loads(resources.files("ordinate.explorer").joinpath(FILE).read_text(encoding="utf-8"))


def number(record: Record, cited: Citation) -> Number:
    """Return a cited number."""
    return Number(**record["numbers"][cited.key])


def read_number(root: Path, cited: Citation) -> Number:
    """Read a cited number from the results of a repository.

    Raises:
        ValueError: the file has no number of this name.
    """
    path = root / cited.file
    if path.suffix == ".csv":
        row, column = cited.name.split(":")
        with path.open(encoding="utf-8", newline="") as file:
            found = next(line for line in csv.DictReader(file) if line["scheme"] == row)
        value, low, high = (float(found[column + end]) for end in ("", "_low", "_high"))
        return Number(value, low, high, cited.unit)
    estimate = _named(cited, "name", _finding(path)["estimates"])
    return Number(*(estimate[key] for key in ("value", "low", "high", "unit")))


def _chart(root: Path, cited: Citation) -> dict[str, Any]:
    chart = _named(cited, "title", _finding(root / cited.file)["charts"])
    lines = [{key: line[key] for key in ("name", "x", "y")} for line in chart["lines"]]
    return {"title": chart["title"], "x": chart["x"], "y": chart["y"], "lines": lines}


def _finding(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))["finding"]


def _named(cited: Citation, key: str, entries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found = {entry[key]: entry for entry in entries}
    came, known = f"{cited.file} has no {cited.name!r}", ", ".join(sorted(found))
    need(cited.name in found, "a citation must name a number of its file", came, f"give one of {known}")
    return found[cited.name]
