"""Contents of study.json: cells, machine and versions; and which of them may not change when a study is resumed."""

import hashlib
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ordinate import __version__
from ordinate.core.class_reference import external_classes, source_digest
from ordinate.core.memory import machine_memory
from ordinate.study.options import data_fields
from ordinate.study.plan import RESUMABLE_FIELDS, RUN_LIST_FIELDS, Plan, differences
from ordinate.study.run import digest

LIBRARIES = ("torch", "numpy", "pytorch-lightning", "safetensors", "tokenizers", "altair")
# libraries that draw the report, and change no result
REPORT_ONLY = ("altair",)
SOURCE_SUFFIXES = (".py", ".h", ".cpp")
# keys of a cell in study.json that do not describe its training data
PLAN_KEYS = ("values", "compared", "plan", "runs")


def provenance(plan: Plan | None = None) -> dict[str, Any]:
    """What the runs of a plan are made by: a hash of the source code, library versions, Python and processor."""
    about = environment(plan)
    return {
        "code": about["code"],
        "versions": about["versions"],
        "python": about["machine"]["python"],
        "processor": about["machine"]["processor"],
    }


def run_provenance(plan: Plan | None = None, threads: int | None = None) -> dict[str, Any]:
    """What decides the bits of a run: its provenance, threads, and the processor's vector instructions in use.

    Args:
        plan: the plan of the run; None: one without classes outside of Ordinate.
        threads: threads of the run; None: those of this process.
    """
    # commands that only read results need no torch
    import torch

    instructions = torch.backends.cpu.get_cpu_capability()
    return {**provenance(plan), "instructions": instructions, "threads": threads or torch.get_num_threads()}


def provenance_differences(about: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """List how code and versions differ from those that a study was made by so far, as "key: old -> new".

    Args:
        about: contents of study.json: it was started, and maybe resumed, by these.
        now: provenance of this process.
    """
    machine = about.get("machine", {})
    started = {"code": about.get("code"), "versions": about.get("versions", {}), "python": machine.get("python")}
    found = [_provenance_lines(one, now) for one in (started, *about.get("resumed_by", ()))]
    return [] if [] in found else found[-1]


def _provenance_lines(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    # classes outside of Ordinate that only one of them has were added to the study, or left out
    added = sorted(name for name in old["versions"].keys() & new["versions"].keys() if ":" in name)
    names = [name for name in ("ordinate", *LIBRARIES, *added) if name not in REPORT_ONLY]
    first, second = (
        {
            "code": str(one["code"])[:12],
            **{name: one["versions"].get(name) for name in names},
            "python": one["python"],
        }
        for one in (old, new)
    )
    return differences(first, second)


def environment(plan: Plan | None = None) -> dict[str, Any]:
    """What determines results besides the plan: machine, library versions, and a hash of the source code.

    The version of a class outside of Ordinate is a hash of its source file.
    """
    versions = {"ordinate": __version__, **{name: version(name) for name in LIBRARIES}}
    versions |= {name: source_digest(name) for name in external_classes(plan.specifications if plan else ())}
    return {"machine": machine(), "versions": versions, "code": code_digest()}


def machine() -> dict[str, Any]:
    """Describe this machine: operating system, processor, cores, memory, Python version."""
    return {
        "system": platform.system(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_bytes": machine_memory(),
        "python": platform.python_version(),
    }


def code_digest() -> str:
    """SHA-256 hash of the package's Python and C++ source."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for file in sorted(file for file in root.rglob("*") if file.suffix in SOURCE_SUFFIXES):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def plan_differences(old: Plan, new: Plan) -> list[str]:
    """List the differences between two plans that forbid resuming one with the other, as "key: old -> new"."""
    if old.cells and new.cells:
        # a run's name in a grid contains a hash of its plan, so runs of other cells cannot be confused
        return []
    if old.cells or new.cells:
        sizes = [f"{len(plan.cells)} cells" if plan.cells else "no grid" for plan in (old, new)]
        return [f"grid: {sizes[0]} -> {sizes[1]}"]
    # the leading arms follow from the results of the others
    silent = {*RESUMABLE_FIELDS, "leader_seeds", "leaders"}
    first, second = (plan.model_dump(mode="json", exclude=silent) for plan in (old, new))
    # schemes, mixers and seeds may be added or removed, but not left out where they were given, or the reverse
    for name in RUN_LIST_FIELDS - silent:
        if (first[name] is None) == (second[name] is None):
            del first[name], second[name]
    steps = [f"steps of {label}" for label in (old.budgets or {}) if label in (new.budgets or {})]
    for fields, budgets in ((first, old.budgets), (second, new.budgets)):
        fields.update({name: (budgets or {})[name.removeprefix("steps of ")] for name in steps})
    return differences(first, second)


def describe_cell_plan(plan: Plan, values: dict[str, Any]) -> dict[str, Any]:
    """Describe a cell for study.json, with labels and run names, so that reports need not import any scheme."""
    lines = [dict(zip(("label", "scheme", "mixer"), one, strict=True)) for one in plan.arms()]
    trials, runs = (
        plan.tuning_runs(values),
        [run for seed in range(plan.seeds) for run in plan.runs_for_seed(values, seed)],
    )
    return {
        "values": values,
        "compared": lines,
        "plan": plan.model_dump(mode="json"),
        "runs": [{"name": run.name, "title": run.title} for run in [*trials, *runs]],
    }


def cells_of(about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells in study.json; for a study without a grid, the study itself."""
    return about.get("cells") or [about]


def data_key(plan: Plan, values: dict[str, Any]) -> str:
    """Identify the training data of a cell: equal for cells with the same data fields and task."""
    return digest([data_fields(dict(plan)), plan.task]) if values else ""


def data_differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """List what has changed in the compared models and in the training data since study.json was written."""
    sources = [kind for kind in new if kind not in PLAN_KEYS]
    # what is left out of a folder is no part of its text
    parts = {kind: [{**one[kind], "left_out": None} for one in (old, new)] for kind in sources}
    lines = [f"{kind}.{line}" for kind, pair in parts.items() for line in differences(*pair)]
    was = {one["label"]: one for one in old.get("compared", new["compared"])}
    return lines + [
        f"{one['label']}.{line}" for one in new["compared"] for line in differences(was.get(one["label"], one), one)
    ]


def processor() -> str:
    """Name of the processor."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
