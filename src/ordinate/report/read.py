"""Load the results of a study from its JSON files."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ordinate.core.atomic_files import read_checksummed
from ordinate.core.checks import need, shown
from ordinate.core.output_folder import nearest_folder
from ordinate.report.metric import Metric, metric_of
from ordinate.study.result_file import READABLE_FORMATS, REMEDY, RESULT_ERRORS, read_result
from ordinate.study.run import slug

# training losses are noisy: they are averaged over consecutive steps, down to about this many points
MAX_POINTS = 60
# limits of a chart: schemes that colours and dashes can distinguish, and lines that remain legible
MAX_ARMS_DRAWN, MAX_LINES = 12, 128
# more seeds than any study has
MAX_SEEDS = 100_000
# sections of a result that only charts and samples need
CHART_SECTIONS = ("training", "positions", "crossing", "samples")


@dataclass(frozen=True)
class Study:
    """The plan of a study and its results.

    Args:
        manifest: the contents of study.json.
        results: the contents of each readable result.json, in the order of the plan.
        pending: names of planned runs without a result.
        damaged: an error message for each unreadable result.
        trials: the results of learning-rate tuning runs.
    """

    manifest: dict[str, Any]
    results: list[dict[str, Any]]
    pending: list[str]
    damaged: list[str]
    trials: list[dict[str, Any]] = field(default_factory=list)

    @property
    def plan(self) -> dict[str, Any]:
        """The plan, as written in study.json."""
        return self.manifest["plan"]

    @property
    def arms(self) -> dict[str, dict[str, str]]:
        """The scheme and the mixer of each compared label."""
        return arms_of(self.manifest)

    @property
    def seeds_drawn(self) -> int:
        """Number of seeds of each label drawn in the charts."""
        return seeds_drawn(self.manifest)

    @property
    def noun(self) -> str:
        """The word for the compared items: scheme, mixer or pair."""
        if not self.plan.get("mixers"):
            return "scheme"
        return "pair" if self.plan["schemes"] else "mixer"

    @cached_property
    def metric(self) -> Metric:
        """The metric of the comparison."""
        return metric_of(self.plan)

    @property
    def training_data(self) -> dict[str, Any]:
        """The training data as described in study.json."""
        return self.manifest[self.metric.section]

    @property
    def data_title(self) -> str:
        """The name of the data or task of the comparison."""
        return self.metric.title(self.plan, self.training_data)

    def seeds_of(self, label: str) -> int:
        """Number of planned runs of a label: a leading one has further seeds."""
        return seeds_of(self.plan, label)

    def finished(self, label: str) -> list[dict[str, Any]]:
        """The results of the finished runs of a label, ordered by seed."""
        return self._ended.get((label, "done"), [])

    def count(self, label: str, status: str) -> int:
        """Number of runs of a label with this status."""
        return len(self._ended.get((label, status), []))

    @cached_property
    def _ended(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """Results by label and status, ordered by seed."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for item in sorted(self.results, key=lambda item: item["run"]["seed"]):
            found.setdefault((item["run"]["label"], item["status"]), []).append(item)
        return found


def load_study(folder: Path) -> Study:
    """Read the folder of a study without a grid; folders of runs that are not in the plan are ignored.

    Raises:
        ValueError: the folder has no study, or one of a format that this version cannot read.
    """
    about = load_manifest(folder)
    found, damaged = _results(folder, about)
    order = {label: place for place, label in enumerate(arms_of(about))}
    found.sort(key=lambda item: (order[item["run"]["label"]], item["run"]["seed"]))
    results, trials = ([item for item in found if ("rate" in item["run"]) == tried] for tried in (False, True))
    ended = {(item["run"]["label"], item["run"]["seed"]) for item in results}
    counts = {label: seeds_of(about["plan"], label) for label in order}
    most = max(counts.values(), default=0)
    planned = [(label, seed) for seed in range(most) for label in order if seed < counts[label]]
    pending = [
        f"{label} seed {seed}"
        for label, seed in planned
        if (label, seed) not in ended and f"{slug(label)}-s{seed}" not in damaged
    ]
    return Study(about, results, pending, list(damaged.values()), trials)


def load_manifest(folder: Path) -> dict[str, Any]:
    """Read study.json.

    Raises:
        ValueError: the folder has no study, or one of a format that this version cannot read.
    """
    path = folder / "study.json"
    try:
        about = read_checksummed(path, "restore it")
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"the folder of a study is needed; {folder} has no study.json; {nearest_folder(folder, 'check the path')}"
        ) from None
    except (OSError, ValueError) as error:
        raise ValueError(f"study.json must be readable; {path} is not ({_reason(error)}); restore it") from None
    if about.get("format") not in READABLE_FORMATS:
        raise ValueError(
            f"this version reads studies of format {' and '.join(map(str, READABLE_FORMATS))}; {path} has "
            f"{about.get('format')!r}; "
            "use the version that wrote it"
        )
    _check_plan(about, path)
    return about


def _check_plan(about: dict[str, Any], path: Path) -> None:
    """Check the types of what the report reads of a plan."""
    plan = about.get("plan")
    plan = plan if isinstance(plan, dict) else {}
    must, remedy = f"plan in {path} must be that of a study", "restore it, or train the study again in another folder"
    for name in ("seeds", "steps", "batch", "length", "width", "layers"):
        value = plan.get(name)
        need(isinstance(value, int) and 0 <= value < 2**62, must, f"{name} is {shown(value)}", remedy)
    # every planned run is counted
    for name in ("seeds", "leader_seeds"):
        value = plan.get(name) or 0
        need(isinstance(value, int) and 0 <= value <= MAX_SEEDS, must, f"{name} is {shown(value)}", remedy)
    for name, kind in (("schemes", str), ("mixers", str), ("leaders", str), ("eval_length_multiples", int)):
        value = plan.get(name)
        fine = value is None or (isinstance(value, list) and all(isinstance(one, kind) for one in value))
        need(fine, must, f"{name} is {shown(value)}", remedy)
    compared = about.get("compared", [])
    need(isinstance(compared, list), must, f"compared is {shown(compared)}", remedy)
    texts = [one.get(key) for one in compared if isinstance(one, dict) for key in ("label", "scheme", "mixer")]
    whole = len(texts) == 3 * len(compared)
    need(whole and all(isinstance(text, str) for text in texts), must, f"compared is {shown(compared)}", remedy)
    need("compared" in about or plan.get("schemes") is not None, must, "it names no schemes", remedy)


def load_cells(folder: Path, about: dict[str, Any]) -> list[tuple[dict[str, Any], Study]]:
    """Read a grid: for each cell the values of its factors, and its runs as a study."""
    cells = []
    for cell in about["cells"]:
        own, found, damaged, pending = {**about, **cell}, [], [], []
        for run in cell["runs"]:
            path = folder / "runs" / run["name"] / "result.json"
            if not path.exists():
                pending.append(run["title"])
                continue
            try:
                found.append(_result(path, own, metric_of(own["plan"])))
            except RESULT_ERRORS as error:
                damaged.append(_describe_damage(path, error))
        results, trials = ([item for item in found if ("rate" in item["run"]) == tried] for tried in (False, True))
        cells.append((cell["values"], Study(own, results, pending, damaged, trials)))
    return cells


def arms_of(about: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The scheme and the mixer of each compared label; studies of format 1 compare schemes only."""
    if "compared" not in about:
        return {label: {"scheme": label, "mixer": "softmax"} for label in about["plan"]["schemes"]}
    return {one["label"]: {"scheme": one["scheme"], "mixer": one["mixer"]} for one in about["compared"]}


def seeds_of(plan: Mapping[str, Any], label: str) -> int:
    """Number of planned runs of a label: a leading one has further seeds."""
    further = plan.get("leader_seeds") or 0
    return plan["seeds"] + further * (label in plan.get("leaders", ()))


def seeds_drawn(about: dict[str, Any]) -> int:
    """Number of seeds of each label drawn in the charts, so that there are at most `MAX_LINES` lines."""
    return max(1, MAX_LINES // max(1, min(MAX_ARMS_DRAWN, len(arms_of(about)))))


def _results(folder: Path, about: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the results of planned runs, and of each run whose result cannot be used, why."""
    results, damaged, labels, kind = [], dict[str, str](), arms_of(about), metric_of(about["plan"])
    units: list[int] = []
    for path in sorted(folder.glob("runs/*/result.json")):
        try:
            result = _result(path, about, kind)
            run = result["run"]
            _check_units(result, units, path, kind)
        except RESULT_ERRORS as error:
            damaged[path.parent.name] = _describe_damage(path, error)
            continue
        planned = run.get("rate") in (about["plan"].get("tune_lr") or ()) if "rate" in run else _seed(run, about)
        if run["label"] in labels and planned:
            results.append(result)
    return results, damaged


def _check_units(result: dict[str, Any], units: list[int], path: Path, kind: Metric) -> None:
    """Check that a result has as many units at every length as those before it: all differences are paired."""
    for row in result.get("lengths", ()) if result["status"] == "done" else ():
        if "table" in row:
            count = len(row["table"][1])
            units.append(count)
            came = f"{path} has {count} at {row['times']} times the trained {kind.extent}, not {units[0]}"
            need(count == units[0], f"all runs and lengths are evaluated on the same {kind.units}", came, REMEDY)


def _reason(error: Exception) -> str:
    # the file is named already
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _describe_damage(path: Path, error: Exception) -> str:
    """Name the run, its file and what is wrong with it."""
    # the text of a KeyError or IndexError is a bare key or number
    said = str(error) if isinstance(error, OSError | ValueError) else f"{path} lacks {error}"
    return f"{path.parent.name}: the result cannot be used: {said}"


def _seed(run: dict[str, Any], about: dict[str, Any]) -> bool:
    return 0 <= run["seed"] < seeds_of(about["plan"], run["label"])


def _result(path: Path, about: dict[str, Any], kind: Metric) -> dict[str, Any]:
    result = read_result(path)
    run = result["run"]["label"], result["run"]["seed"]
    if result["status"] == "done" and "rate" in result["run"]:
        result["aside"]
        for section in ("training", "cost"):
            _need_section(result, section)
    elif result["status"] == "done":
        _gather(result, kind, pictured=run[1] < seeds_drawn(about))
    return result


def _need_section(result: dict[str, Any], name: str) -> None:
    need(isinstance(result[name], dict), f"{name} must be an object", f"got {shown(result[name])}", REMEDY)


def _gather(result: dict[str, Any], kind: Metric, *, pictured: bool) -> None:
    """Validate a result and drop what the report does not need, so that thousands of runs fit into memory."""
    for section in ("parameters", "training", "cost"):
        _need_section(result, section)
    for section in kind.sections:
        result[section]
    for row in result["lengths"]:
        for name in ("times", "length"):
            whole = type(row[name]) is int and row[name] > 0
            need(whole, "a length is a whole number above zero", f"{name} is {shown(row[name])}", REMEDY)
        if kind.has_value(row):
            row["table"] = kind.table(row)
            # many runs are evaluated on the same documents: interning stores each name once
            row["units"] = [sys.intern(one["name"]) for one in row.get("documents", ()) if "name" in one]
            if not all(np.isfinite(side).all() and len(side) for side in row["table"]):
                raise ValueError("a measured value is not finite")
        for name in kind.per_unit_fields:
            row.pop(name, None)
    if not pictured:
        for name in CHART_SECTIONS:
            result.pop(name, None)
        return
    steps, losses = result["training"]["steps"], result["training"]["loss"]
    size = max(1, len(steps) // MAX_POINTS)
    ends = range(size, len(steps) + 1, size)
    means = [sum(losses[end - size : end]) / size for end in ends]
    result["training"] = {"steps": [steps[end - 1] for end in ends], "loss": means}
