"""Report texts on the code and the versions that runs were made with."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ordinate.report.read import Study

UNKNOWN = "unknown"


def provenance_warning(studies: Sequence[Study]) -> list[str]:
    """State that the runs were not all made by the same code and versions; nothing if they were."""
    found = made_by(studies)
    if len(found) < 2:
        return []
    listed = "; ".join(f"{_runs(count)}: {words}" for words, count in found)
    return [
        f"Not all runs were made by the same code and versions ({listed}); part of a difference may be due to that."
    ]


def made_by(studies: Sequence[Study]) -> list[tuple[str, int]]:
    """Return what the finished runs were made by, each with its number of runs, most runs first.

    Results of earlier versions of Ordinate do not say it; `unknown` stands for them.
    """
    every = [item.get("provenance") for study in studies for item in [*study.results, *study.trials]
             if "training" in item or "provenance" in item]  # fmt: skip
    # only what differs is worth naming
    keys = sorted({key for one in every if one for key in _parts(one)})
    named = [key for key in keys if len({_parts(one).get(key) for one in every if one}) > 1]
    return Counter(_describe(one, named) for one in every).most_common()


def _parts(provenance: dict[str, Any]) -> dict[str, str]:
    """Flatten a provenance; of the code, the first digits of its hash. Processors are shown elsewhere."""
    code, python = str(provenance.get("code", ""))[:12], str(provenance.get("python"))
    return {**provenance.get("versions", {}), "source": code, "python": python}


def _describe(provenance: dict[str, Any] | None, names: Sequence[str]) -> str:
    if provenance is None:
        return UNKNOWN
    parts = _parts(provenance)
    return ", ".join(f"{name} {parts.get(name, UNKNOWN)}" for name in names) or f"ordinate {parts.get('ordinate')}"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
