"""The results of a study, read from its JSON files."""

import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ordinate.files import read_sealed
from ordinate.report.quantity import Quantity, quantity_of
from ordinate.study.state import STATES

# the second came with mixers and tasks
FORMATS = (1, 2)
# what a file says that is no result
UNREADABLE = (OSError, ValueError, KeyError, TypeError, IndexError)
# training losses are noisy: each point that is kept is the mean of several steps, so that there are about so many
POINTS = 60
# as many schemes are drawn as colours and dashes tell apart, and as many lines as an eye can follow
DRAWN, LINES = 32, 128
# what only charts and samples tell
PICTURED = ("training", "positions", "crossing", "samples")


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
    def drawn(self) -> int:
        """Of how many seeds of each there are lines in the charts."""
        return drawn(self.about)

    @property
    def noun(self) -> str:
        """What is compared, in a word."""
        if not self.plan.get("mixers"):
            return "scheme"
        return "pair" if self.plan["schemes"] else "mixer"

    @cached_property
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
        return self._ended.get((label, "done"), [])

    def count(self, label: str, status: str) -> int:
        """How many runs of a scheme ended in this way."""
        return len(self._ended.get((label, status), []))

    @cached_property
    def _ended(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """The results of a scheme that ended in one way, seeds in order."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for item in sorted(self.results, key=lambda item: item["run"]["seed"]):
            found.setdefault((item["run"]["label"], item["status"]), []).append(item)
        return found


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
        about = read_sealed(path)
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
                found.append(_result(path, own, quantity_of(own["plan"])))
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


def drawn(about: dict[str, Any]) -> int:
    """Of how many seeds of each there are lines in the charts."""
    return max(1, LINES // max(1, min(DRAWN, len(compared(about)))))


def _results(folder: Path, about: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    results, damaged, labels, kind = [], [], compared(about), quantity_of(about["plan"])
    for path in sorted(folder.glob("runs/*/result.json")):
        try:
            result = _result(path, about, kind)
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


def _result(path: Path, about: dict[str, Any], kind: Quantity) -> dict[str, Any]:
    result = read_sealed(path)
    if result["format"] not in FORMATS or result["status"] not in STATES:
        raise ValueError(f"format {result['format']!r}, status {result['status']!r}")
    run = result["run"]["label"], result["run"]["seed"]
    if result["status"] == "done" and "rate" in result["run"]:
        result["aside"], result["training"], result["cost"]
    elif result["status"] == "done":
        _gather(result, kind, pictured=run[1] < drawn(about))
    return result


def _gather(result: dict[str, Any], kind: Quantity, *, pictured: bool) -> None:
    """Check a result, and keep of it what is told: a study of thousands of runs has to fit into memory."""
    for section in ("parameters", "training", "cost", *kind.sections):
        result[section]
    for row in result["lengths"]:
        if kind.measured(row):
            row["table"] = kind.table(row)
            # many runs are measured on the same documents: each name is kept once
            row["units"] = [sys.intern(one["name"]) for one in row.get("documents", ()) if "name" in one]
            if not all(np.isfinite(side).all() and len(side) for side in row["table"]):
                raise ValueError("a measured number is not finite")
        for name in kind.single:
            row.pop(name, None)
    if not pictured:
        for name in PICTURED:
            result.pop(name, None)
        return
    steps, losses = result["training"]["steps"], result["training"]["loss"]
    size = max(1, len(steps) // POINTS)
    ends = range(size, len(steps) + 1, size)
    means = [sum(losses[end - size : end]) / size for end in ends]
    result["training"] = {"steps": [steps[end - 1] for end in ends], "loss": means}
