"""The results of a study, read from its JSON files."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
ENDED = ("done", "diverged", "failed")


@dataclass(frozen=True)
class Study:
    """What a study planned and measured.

    Args:
        about: the contents of study.json.
        results: the contents of each readable result.json, in the order of the plan.
        pending: names of planned runs without a result.
        damaged: one line for each result that cannot be read.
    """

    about: dict[str, Any]
    results: list[dict[str, Any]]
    pending: list[str]
    damaged: list[str]

    @property
    def plan(self) -> dict[str, Any]:
        """The plan."""
        return self.about["plan"]

    def done(self, label: str) -> list[dict[str, Any]]:
        """The results of the finished runs of a scheme, seeds in order."""
        found = [item for item in self.results if item["run"]["label"] == label and item["status"] == "done"]
        return sorted(found, key=lambda item: item["run"]["seed"])

    def count(self, label: str, status: str) -> int:
        """How many runs of a scheme ended in this way."""
        return sum(item["run"]["label"] == label and item["status"] == status for item in self.results)


def read(folder: Path) -> Study:
    """Read a study's folder; folders that are no planned run are passed over.

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
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        found = about.get("format") if isinstance(about, dict) else None
        raise ValueError(
            f"this version reads studies of format {FORMAT}; {path} has {found!r}; use the version that wrote it"
        )
    results, damaged = _results(folder, about)
    order = {label: place for place, label in enumerate(about["plan"]["schemes"])}
    results.sort(key=lambda item: (order[item["run"]["label"]], item["run"]["seed"]))
    ended = {(item["run"]["label"], item["run"]["seed"]) for item in results}
    planned = [(label, seed) for seed in range(about["plan"]["seeds"]) for label in order]
    pending = [f"{label} seed {seed}" for label, seed in planned if (label, seed) not in ended]
    return Study(about, results, pending, damaged)


def _results(folder: Path, about: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    results, damaged = [], []
    for path in sorted(folder.glob("runs/*/result.json")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
            run = result["run"]
            if result["format"] != FORMAT or result["status"] not in ENDED:
                raise ValueError(f"format {result['format']!r}, status {result['status']!r}")
            if result["status"] == "done":
                _check(result)
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            damaged.append(f"{path.parent.name}: the result cannot be read ({type(error).__name__}: {error})")
            continue
        if run["label"] in about["plan"]["schemes"] and 0 <= run["seed"] < about["plan"]["seeds"]:
            results.append(result)
    return results, damaged


def _check(result: dict[str, Any]) -> None:
    for row in result["lengths"]:
        if row["nats_per_token"] is not None and not math.isfinite(row["bits_per_byte"] + len(row["documents"])):
            raise ValueError("a measured number is not finite")
    for section in ("parameters", "training", "positions", "order", "samples", "cost"):
        result[section]


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")
