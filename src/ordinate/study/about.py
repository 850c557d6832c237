"""What study.json says: of each cell, of the machine, and what in it may not change."""

import hashlib
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ordinate import __version__
from ordinate.study.fields import prepared
from ordinate.study.plan import FREE, LISTED, Plan, differences
from ordinate.study.run import digest

LIBRARIES = ("torch", "numpy", "pytorch-lightning", "safetensors", "tokenizers", "altair")
SOURCES = (".py", ".h", ".cpp")
# what study.json says of a cell beside what is learned in it
PLANNED = ("values", "compared", "plan", "runs")


def surroundings() -> dict[str, Any]:
    """What decides results beside a plan: the machine, the versions of what is used, the code."""
    versions = {"ordinate": __version__, **{name: version(name) for name in LIBRARIES}}
    return {"machine": machine(), "versions": versions, "code": code_digest()}


def machine() -> dict[str, Any]:
    """What this machine is."""
    return {
        "system": platform.system(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_bytes": _memory(),
        "python": platform.python_version(),
    }


def code_digest() -> str:
    """A hash of the package's source, in Python and C++."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for file in sorted(file for file in root.rglob("*") if file.suffix in SOURCES):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def changed(old: Plan, new: Plan) -> list[str]:
    """What must not differ between two plans of one folder, and does: "key: old -> new"."""
    if old.cells and new.cells:
        # the name of a run in a grid says everything that it is
        return []
    if old.cells or new.cells:
        said = [f"{len(plan.cells)} cells" if plan.cells else "no grid" for plan in (old, new)]
        return [f"grid: {said[0]} -> {said[1]}"]
    first, second = (plan.model_dump(mode="json", exclude=set(FREE)) for plan in (old, new))
    for name in LISTED:
        if (first[name] is None) == (second[name] is None):
            del first[name], second[name]
    steps = [f"steps of {label}" for label in (old.budgets or {}) if label in (new.budgets or {})]
    for said, budgets in ((first, old.budgets), (second, new.budgets)):
        said.update({name: (budgets or {})[name.removeprefix("steps of ")] for name in steps})
    return differences(first, second)


def planned(plan: Plan, values: dict[str, Any]) -> dict[str, Any]:
    """What study.json says of a cell, so that a report need load no scheme."""
    lines = [dict(zip(("label", "scheme", "mixer"), one, strict=True)) for one in plan.compared()]
    trials, runs = plan.own_trials(values), [run for seed in range(plan.seeds) for run in plan.own_runs(values, seed)]
    return {
        "values": values,
        "compared": lines,
        "plan": plan.model_dump(mode="json"),
        "runs": [{"name": run.name, "title": run.title} for run in [*trials, *runs]],
    }


def cells_of(about: dict[str, Any]) -> list[dict[str, Any]]:
    """What study.json says of each cell; of a study without a grid, of itself."""
    return about.get("cells") or [about]


def place_of(plan: Plan, values: dict[str, Any]) -> str:
    """What learns from the same."""
    return digest([prepared(dict(plan)), plan.task]) if values else ""


def others(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What models are, and what they learn from, that has changed since."""
    sources = [kind for kind in new if kind not in PLANNED]
    lines = [f"{kind}.{line}" for kind in sources for line in differences(old[kind], new[kind])]
    was = {one["label"]: one for one in old.get("compared", new["compared"])}
    return lines + [
        f"{one['label']}.{line}" for one in new["compared"] for line in differences(was.get(one["label"], one), one)
    ]


def processor() -> str:
    """What computes where there is no GPU."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
