"""The results of a study, read from its JSON files."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ordinate.report.quantity import Quantity, quantity_of
from ordinate.study.state import STATES

# the second came with mixers and tasks
FORMATS = (1, 2)
# what a file says that is no result
UNREADABLE = (OSError, ValueError, KeyError, TypeError, IndexError)


@dataclass(frozen=True)
class Study:
    """What a study planned and measured.

    Args:
        about: the contents of study.json.
        results: the contents of each readable result.json, in the order of the plan.
        pending: names of planned runs without a result.
        damaged: one line for each result that cannot be read.
        trials: the results of trials of learning rates.
    """

    about: dict[str, Any]
    results: list[dict[str, Any]]
    pending: list[str]
    damaged: list[str]
    trials: list[dict[str, Any]] = field(default_factory=list)

    @property
    def plan(self) -> dict[str, Any]:
        """The plan."""
        return self.about["plan"]

    @property
    def compared(self) -> dict[str, dict[str, str]]:
        """What is compared, by label: the scheme and the mixer of each."""
        return compared(self.about)

    @property
    def noun(self) -> str:
        """What is compared, in a word."""
        if not self.plan.get("mixers"):
            return "scheme"
        return "pair" if self.plan["schemes"] else "mixer"

    @property
    def quantity(self) -> Quantity:
        """What it is compared by."""
        return quantity_of(self.plan)

    @property
    def learned(self) -> dict[str, Any]:
        """What study.json says of what was learned from."""
        return self.about[self.quantity.section]

    @property
    def source(self) -> str:
        """What it was compared on, in words."""
        return self.quantity.title(self.plan, self.learned)

    def done(self, label: str) -> list[dict[str, Any]]:
        """The results of the finished runs of a scheme, seeds in order."""
        found = [item for item in self.results if item["run"]["label"] == label and item["status"] == "done"]
        return sorted(found, key=lambda item: item["run"]["seed"])

    def count(self, label: str, status: str) -> int:
        """How many runs of a scheme ended in this way."""
        return sum(item["run"]["label"] == label and item["status"] == status for item in self.results)


def read(folder: Path) -> Study:
    """Read the folder of a study without a grid; folders that are no planned run are passed over.

    Raises:
        ValueError: no study there, or one that this version cannot read.
    """
    about = read_about(folder)
    found, damaged = _results(folder, about)
    order = {label: place for place, label in enumerate(compared(about))}
    found.sort(key=lambda item: (order[item["run"]["label"]], item["run"]["seed"]))
    results, trials = ([item for item in found if ("rate" in item["run"]) == tried] for tried in (False, True))
    ended = {(item["run"]["label"], item["run"]["seed"]) for item in results}
    planned = [(label, seed) for seed in range(about["plan"]["seeds"]) for label in order]
    pending = [f"{label} seed {seed}" for label, seed in planned if (label, seed) not in ended]
    return Study(about, results, pending, damaged, trials)


def read_about(folder: Path) -> dict[str, Any]:
    """The contents of study.json.

    Raises:
        ValueError: no study there, or one that this version cannot read.
    """
    path = folder / "study.json"
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"a report is built from a study's folder; {folder} has no study.json; check the path"
        ) from None
    except (OSError, ValueError) as error:
        raise ValueError(f"study.json must be readable; {path} is not ({error}); restore it") from None
    if not isinstance(about, dict) or about.get("format") not in FORMATS:
        found = about.get("format") if isinstance(about, dict) else None
        raise ValueError(
            f"this version reads studies of format {' and '.join(map(str, FORMATS))}; {path} has {found!r}; "
            "use the version that wrote it"
        )
    return about


def read_cells(folder: Path, about: dict[str, Any]) -> list[tuple[dict[str, Any], Study]]:
    """The cells of a grid: the values of its factors, and the cell as a study of its own."""
    cells = []
    for cell in about["cells"]:
        own, found, damaged, pending = {**about, **cell}, [], [], []
        for run in cell["runs"]:
            path = folder / "runs" / run["name"] / "result.json"
            if not path.exists():
                pending.append(run["title"])
                continue
            try:
                found.append(_result(path, own))
            except UNREADABLE as error:
                damaged.append(f"{run['name']}: the result cannot be read ({type(error).__name__}: {error})")
        results, trials = ([item for item in found if ("rate" in item["run"]) == tried] for tried in (False, True))
        cells.append((cell["values"], Study(own, results, pending, damaged, trials)))
    return cells


def compared(about: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What is compared, by label; before there were mixers, schemes alone."""
    if "compared" not in about:
        return {label: {"scheme": label, "mixer": "softmax"} for label in about["plan"]["schemes"]}
    return {one["label"]: {"scheme": one["scheme"], "mixer": one["mixer"]} for one in about["compared"]}


def _results(folder: Path, about: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    results, damaged, labels = [], [], compared(about)
    for path in sorted(folder.glob("runs/*/result.json")):
        try:
            result = _result(path, about)
            run = result["run"]
        except UNREADABLE as error:
            damaged.append(f"{path.parent.name}: the result cannot be read ({type(error).__name__}: {error})")
            continue
        planned = run.get("rate") in (about["plan"].get("tune") or ()) if "rate" in run else _seed(run, about)
        if run["label"] in labels and planned:
            results.append(result)
    return results, damaged


def _seed(run: dict[str, Any], about: dict[str, Any]) -> bool:
    return 0 <= run["seed"] < about["plan"]["seeds"]


def _result(path: Path, about: dict[str, Any]) -> dict[str, Any]:
    result = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    if result["format"] not in FORMATS or result["status"] not in STATES:
        raise ValueError(f"format {result['format']!r}, status {result['status']!r}")
    result["run"]["label"], result["run"]["seed"]
    if result["status"] == "done" and "rate" in result["run"]:
        result["aside"], result["training"], result["cost"]
    elif result["status"] == "done":
        _check(result, quantity_of(about["plan"]))
    return result


def _check(result: dict[str, Any], kind: Quantity) -> None:
    for row in result["lengths"]:
        if kind.measured(row) and not all(np.isfinite(side).all() and len(side) for side in kind.table(row)):
            raise ValueError("a measured number is not finite")
    for section in ("parameters", "training", "cost", *kind.sections):
        result[section]


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")
