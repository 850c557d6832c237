"""Report texts on the code and the versions that runs were made with."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ordinate.report.read import Study

UNKNOWN = "unknown"
# names of runs in a sentence; the page lists all of them
MAX_NAMED = 4


class MadeBy(NamedTuple):
    """Code and versions, and the runs that were made by them.

    Args:
        words: the code and the versions, as far as they differ between runs.
        runs: names of the runs.
        labels: labels of the runs.
    """

    words: str
    runs: tuple[str, ...]
    labels: frozenset[str]


def provenance_warning(studies: Sequence[Study]) -> list[str]:
    """State which runs were made by which code and versions; nothing if all were made by the same."""
    found = made_by(studies)
    if len(found) < 2:
        return []
    listed = "; ".join(f"{_runs(one.runs)}: {one.words}" for one in found)
    every = frozenset[str]().union(*(one.labels for one in found))
    noun = studies[0].noun
    doubt = f"none of them made every {noun}, so a difference between {noun}s may be due to that"
    if any(one.labels == every for one in found):
        doubt = "part of a difference may be due to that"
    return [f"Not all runs were made by the same code and versions ({listed}); {doubt}."]


def provenance_facts(studies: Sequence[Study]) -> list[tuple[str, str]]:
    """Return the code and the versions of the runs, and the names of the runs; nothing if all have the same."""
    found = made_by(studies)
    return [(one.words, ", ".join(one.runs)) for one in found] if len(found) > 1 else []


def made_by(studies: Sequence[Study]) -> list[MadeBy]:
    """Return what the finished runs were made by, most runs first.

    Results of earlier versions of Ordinate do not say it; `unknown` stands for them.
    """
    every = [item for study in studies for item in [*study.results, *study.trials]
             if "training" in item or "provenance" in item]  # fmt: skip
    # only what differs is worth naming
    known = [_parts(item["provenance"]) for item in every if "provenance" in item]
    keys = sorted({key for one in known for key in one})
    named = [key for key in keys if len({one.get(key) for one in known}) > 1]
    groups: dict[str, list[dict[str, Any]]] = {}
    for item in every:
        groups.setdefault(_describe(item.get("provenance"), named), []).append(item["run"])
    found = [
        MadeBy(words, tuple(sorted(run["name"] for run in runs)), frozenset(run["label"] for run in runs))
        for words, runs in groups.items()
    ]
    return sorted(found, key=lambda one: -len(one.runs))


def _parts(provenance: dict[str, Any]) -> dict[str, str]:
    """Flatten a provenance; of the code, the first digits of its hash. Processors are shown elsewhere."""
    code, python = str(provenance.get("code", ""))[:12], str(provenance.get("python"))
    return {**provenance.get("versions", {}), "source": code, "python": python}


def _describe(provenance: dict[str, Any] | None, names: Sequence[str]) -> str:
    if provenance is None:
        return UNKNOWN
    parts = _parts(provenance)
    return ", ".join(f"{name} {parts.get(name, UNKNOWN)}" for name in names) or f"ordinate {parts.get('ordinate')}"


def _runs(names: Sequence[str]) -> str:
    count = "1 run" if len(names) == 1 else f"{len(names)} runs"
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{count} ({', '.join(names[:MAX_NAMED])}{more})"
