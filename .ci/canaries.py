"""Train the first steps of each committed study again: `python .ci/canaries.py [STUDY ...] [--check | --measure]`.

The training losses of the first steps of every run of the first seed are kept in studies/STUDY/canary.json. Code that
changes them beyond rounding would change what the study says. Width, layers, heads, schemes, mixers, optimiser,
learning rates and seed are those of the study. Different are the text, which is the file LICENSE, so that it does not
depend on the version of Python; the batch, which is smaller; the precision, which is float32; and one thread. No
kernel in C++ is used: tests of their own compare them with the formulas that run here. Of a study with more than MOST
runs, MOST evenly spaced ones are trained.

Without an option the files are written anew; with --check they are compared, and the exit code is 1 if one differs;
with --measure the effects of rounding and of small changes are measured, and written into studies/canaries.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from ordinate.core import catalog
from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.checks import need, need_known
from ordinate.core.progress import Progress, ignore
from ordinate.report.reproduction import Comparison, compare
from ordinate.study.data_source import source_of
from ordinate.study.manifest import run_provenance
from ordinate.study.options import unused_fields
from ordinate.study.plan import Plan, differences
from ordinate.study.run import Run, digest
from ordinate.study.study_folder import StudyFolder
from ordinate.study.worker import plan_of_run, settings_of, start_of_run
from ordinate.training.loop import train
from ordinate.training.metrics import Metrics
from ordinate.training.settings import TrainingDiverged

ROOT = Path(__file__).parents[1]
STUDIES = ROOT / "studies"
FILE, MEASURED = "canary.json", STUDIES / "canaries.json"
FORMAT, STEPS, BATCH, MOST = 1, 20, 4, 24
# runs of a study on which --measure tries changes
TRIED = 8
TEXT = "LICENSE"
# mean absolute difference of the losses [nats]; docs/study.md has the measurements
TOLERANCE = 2e-5
COMMAND = "python .ci/canaries.py"
Record = dict[str, Any]


class EnoughStepsError(Exception):
    """The first steps have been trained."""


def folders(names: Sequence[str] = (), root: Path = STUDIES) -> list[StudyFolder]:
    """Return the committed studies, or those of these names.

    Raises:
        ValueError: there is no such study.
    """
    found = {path.parent.name: StudyFolder(path.parent) for path in sorted(root.glob("*/study.json"))}
    for name in names:
        need_known("committed study", name, found)
    return [found[name] for name in names or found]


def canary_runs(plan: Plan, most: int = MOST) -> list[Run]:
    """Return the runs of the first seed, in every cell; of more than `most`, so many evenly spaced ones."""
    runs = [run for run in plan.runs() if run.rate is None and run.seed == 0]
    if len(runs) <= most:
        return runs
    return [runs[round(place * (len(runs) - 1) / (most - 1))] for place in range(most)]


def changes(plan: Plan) -> dict[str, Any]:
    """Return the fields in which the plan of a canary differs from that of its study.

    Raises:
        ValueError: the study reads data that is not the same on every machine.
    """
    name, read = (
        catalog.parse(plan.task)[0],
        set(Plan.model_fields) - set(unused_fields(plan.task, Plan.model_fields)),
    )
    remedy = "give the canary data of its own, in .ci/canaries.py"
    need("pairs" not in read, "a canary needs fixed data", f"task {name} reads {plan.pairs}", remedy)
    need(plan.base is None, "a canary needs new models", f"got a trained one, {plan.base}", remedy)
    own = {"text": str(ROOT / TEXT), "encoding": "utf-8"} if "text" in read else {}
    return {**own, "batch": min(BATCH, plan.batch), "precision": "fp32", "threads": 1}


def first_losses(plan: Plan, run: Run, data: Path, place: Path, scale: float = 1) -> list[float]:
    """Return the training losses of the first steps of a run, with the learning rates of the whole run [nats].

    Args:
        plan: the plan of the run.
        run: the run.
        data: folder of the prepared data.
        place: folder to train in.
        scale: factor of the initial weights of every matrix, for --measure.
    """

    def stop(progress: Progress) -> None:
        if (progress.done or 0) >= STEPS:
            raise EnoughStepsError

    source = source_of(plan)(plan, data)
    source.prepare(ignore)
    _, model = start_of_run(plan, run, source)
    if scale != 1:
        with torch.no_grad():
            for matrix in (parameter for parameter in model.parameters() if parameter.ndim > 1):
                matrix *= scale
    # of a run that diverges there are fewer losses
    with suppress(EnoughStepsError, TrainingDiverged):
        train(model, source.task, settings_of(plan, run), place, stop)
    return [loss for _, loss in Metrics(place / "metrics.jsonl").read()]


def identity(plan: Plan, data: Path) -> Record:
    """Return what identifies the data of a canary, without the path of its text on this machine."""
    found = source_of(plan)(plan, data).identity
    return {kind: {**one, "name": TEXT} if kind == "text" else one for kind, one in found.items()}


def canary(study: StudyFolder, threads: int = 1, most: int = MOST, **mutant: Any) -> Record:
    """Train the first steps of the runs of a study; returns the contents of its canary.json.

    Args:
        study: the study; only study.json and the results of tuning runs are read.
        threads: threads, for --measure.
        most: runs to train at most.
        mutant: what is changed, for --measure: `scheme` and `warmup` (added steps) or `scale`.
    """
    torch.set_num_threads(threads)
    whole, losses, data = study.plan(), {}, {}
    with tempfile.TemporaryDirectory() as name:
        here = StudyFolder(Path(name))
        for run in canary_runs(whole, most):
            plan = plan_of_run(study, whole, run)[0]
            plan = plan.model_copy(
                update={**changes(plan), "warmup_steps": plan.warmup_steps + mutant.get("warmup", 0)}
            )
            trained = run.model_copy(update={"scheme": mutant.get("scheme", run.scheme)})
            place = here.data_of(plan, run.cell)
            place.parent.mkdir(parents=True, exist_ok=True)
            losses[run.name] = first_losses(plan, trained, place, here.run(run), mutant.get("scale", 1))
            data[digest(run.cell) if run.cell else "all"] = identity(plan, place)
    return {**_of(study), "data": data, "provenance": run_provenance(threads=threads), "losses": losses}


def _of(study: StudyFolder) -> Record:
    """What can be said of a canary without training: the plan of its study, and what is different."""
    about = study.read()
    changed = changes(study.plan())
    if "text" in changed:
        changed["text"] = TEXT
    return {"format": FORMAT, "plan": digest(about["plan"]), "steps": STEPS, "changes": changed}


def stale(study: StudyFolder) -> str:
    """Say why the canary of a study is not that of its plan; empty if it is. Nothing is trained."""
    path = study.path / FILE
    if not path.exists():
        return f"{path.parent.name} has no {FILE}"
    stored, now = read_checksummed(path), _of(study)
    lines = differences({name: stored.get(name) for name in now}, now)
    names = [run.name for run in canary_runs(study.plan())]
    lines += [] if list(stored["losses"]) == names else [f"runs: {list(stored['losses'])} -> {names}"]
    return f"{path.parent.name} has the {FILE} of another plan: {'; '.join(lines)}" if lines else ""


def steady(study: StudyFolder) -> dict[str, int]:
    """Return the number of first steps to compare, for the runs of a study in which rounding grows faster."""
    return (
        read_checksummed(MEASURED)["studies"].get(study.path.name, {}).get("steady", {}) if MEASURED.exists() else {}
    )


def compared(study: StudyFolder, stored: Record, again: Record) -> dict[str, Comparison]:
    """Compare each run of a canary with the same run trained again."""
    plan, few, lines = study.plan(), steady(study), {}
    for run in canary_runs(plan):
        steps = few.get(run.name, STEPS)
        one, other = (
            {"status": "done", "training": {"loss": part["losses"][run.name][:steps]}} for part in (stored, again)
        )
        made = {**one, "provenance": stored["provenance"]}
        fields = plan.for_run(run).model_dump(mode="json")
        lines[run.name] = compare({}, fields, made, other, again["provenance"], steps, TOLERANCE)
    return lines


def check(study: StudyFolder, again: Record) -> list[str]:
    """Return what differs between the canary of a study and the same steps trained now."""
    stored = read_checksummed(study.path / FILE)
    found = differences(stored["data"], again["data"])
    if found:
        return [f"{study.path.name}: the data has changed: {line}" for line in found]
    lines = compared(study, stored, again)
    return [f"{study.path.name}/{name}: {one.answer}" for name, one in lines.items() if one.outcome == "different"]


def apart(stored: Record, again: Record, few: Mapping[str, int]) -> dict[str, float]:
    """Return the mean absolute difference of the losses of each run that was trained again [nats].

    Args:
        stored: the canary.
        again: the same runs, or some of them, trained again.
        few: number of first steps to compare, of the runs of which not all are.
    """
    return {name: fmean(_differences(stored, again, name)[: few.get(name, STEPS)]) for name in again["losses"]}


def _differences(stored: Record, again: Record, name: str) -> list[float]:
    return [abs(a - b) for a, b in zip(stored["losses"][name], again["losses"][name], strict=True)]


def _steady_steps(differences: Sequence[float]) -> int:
    """The number of first steps over which the mean difference stays below a tenth of the tolerance."""
    return next((n - 1 for n in range(1, STEPS + 1) if fmean(differences[:n]) > TOLERANCE / 10), STEPS)


AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
# threads that wait do not keep a core of a busy machine
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
ROUNDING: dict[str, tuple[dict[str, str], int]] = {
    "AVX2 in place of AVX-512": (AVX2, 1),
    "2 threads": (PASSIVE, 2),
}
CHANGES: dict[str, dict[str, Any]] = {
    "warm-up of one step more": {"warmup": 1},
    "initial matrices 2 % larger": {"scale": 1.02},
    "without its scheme": {"scheme": "none"},
}
"""Conditions that round differently, as environment and threads; changes, as arguments of `canary`."""


def measure(study: StudyFolder) -> dict[str, Any]:
    """Measure how far rounding and small changes move the losses: the smallest and the largest of the runs [nats]."""
    stored, waiting = read_checksummed(study.path / FILE), {}
    for name, (variables, threads) in ROUNDING.items():
        command = [sys.executable, __file__, study.path.name, "--losses", str(threads)]
        waiting[name] = subprocess.Popen(command, env={**os.environ, **variables}, text=True, stdout=subprocess.PIPE)
    moved = {name: canary(study, most=TRIED, **mutant) for name, mutant in CHANGES.items()}
    rounded = {name: json.loads(process.communicate()[0])[0] for name, process in waiting.items()}
    steps = {
        run: min(_steady_steps(_differences(stored, again, run)) for again in rounded.values())
        for run in stored["losses"]
    }
    few = {run: count for run, count in steps.items() if count < STEPS}
    schemes = {run.name: run.scheme for run in canary_runs(study.plan(), TRIED)}
    found: dict[str, Any] = {name: _ends(apart(stored, again, few).values()) for name, again in rounded.items()}
    for name, again in moved.items():
        # a run without a scheme has none to leave out
        touched = [
            value for run, value in apart(stored, again, few).items() if schemes[run] != CHANGES[name].get("scheme")
        ]
        found |= {name: _ends(touched)} if touched else {}
    return {**found, "steady": few}


def _ends(numbers: Iterable[float]) -> list[float]:
    ordered = sorted(numbers)
    return [float(f"{end:.3g}") for end in (ordered[0], ordered[-1])]


def rows(measured: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Return a table of what was measured: a row for each condition and change, a column for each study."""
    names = list(measured)
    lines = [["largest difference by", *names]]
    for what in ROUNDING:
        lines.append([what, *(f"{measured[name][what][1]:.1g}" for name in names)])
    lines.append(["*tolerance*", *[f"*{TOLERANCE:g}*"] * len(names)])
    lines.append(["**smallest difference by**", *[""] * len(names)])
    for what in CHANGES:
        ends = [measured[name].get(what) for name in names]
        lines.append([what, *(f"{end[0]:.1g}" if end else "–" for end in ends)])
    few = (", ".join(f"{run}: {count}" for run, count in measured[name]["steady"].items()) for name in names)
    lines.append(["steps compared, if not 20", *(told or "–" for told in few)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (lines[0], ["---"] * len(lines[0]), *lines[1:]))


def pages() -> dict[Path, dict[str, str]]:
    """Return the table of the measured differences, for docs/study.md."""
    return {ROOT / "docs" / "study.md": {"canaries": rows(read_checksummed(MEASURED)["studies"])}}


def options(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Canaries of the committed studies: write them anew.")
    parser.add_argument("names", nargs="*", metavar="STUDY", help="studies; by default all")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="compare them; exit code 1 if one differs")
    what.add_argument(
        "--measure", action="store_true", help=f"measure what the tolerance is compared with: {MEASURED.name}"
    )
    what.add_argument("--losses", type=int, metavar="THREADS", help="only print the losses, as JSON")
    return parser.parse_args(words)


def main() -> None:
    """Write, compare or measure the canaries."""
    given = options(sys.argv[1:])
    # a machine without a compiler must have the same losses
    os.environ["ORDINATE_NATIVE"] = "off"
    studies, failed = folders(given.names), []
    if given.losses:
        return print(json.dumps([canary(study, given.losses) for study in studies]))
    if given.measure:
        return _write_measured({study.path.name: measure(study) for study in studies})
    for study in studies:
        if given.check:
            old = stale(study)
            failed += [old] if old else check(study, canary(study))
        else:
            write_checksummed(study.path / FILE, canary(study))
            print((study.path / FILE).relative_to(ROOT))
    if failed:
        remedy = f"if this is intended, train the studies again, or write their canaries anew: {COMMAND} STUDY"
        sys.exit("\n".join([*failed, remedy]))


def _write_measured(found: dict[str, dict[str, Any]]) -> None:
    """Write what was measured, beside what was measured of other studies that still exist.

    Of each run as many steps are compared as all processors allow on which that was measured.
    """
    before = read_checksummed(MEASURED)["studies"] if MEASURED.exists() else {}
    for name in before.keys() & found.keys():
        earlier, now = before[name]["steady"], found[name]["steady"]
        few = {run: min(earlier.get(run, STEPS), now.get(run, STEPS)) for run in sorted({*earlier, *now})}
        found[name]["steady"] = few
    known = {study.path.name for study in folders()}
    kept = {name: one for name, one in sorted({**before, **found}.items()) if name in known}
    write_checksummed(MEASURED, {"made_by": run_provenance(threads=1), "studies": kept})
    print(f"{MEASURED.relative_to(ROOT)} is written; now run ./dev pages")


if __name__ == "__main__":
    main()
