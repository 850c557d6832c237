"""Every planned run ends in exactly one state, however its process ends; the report counts them all."""

import os

import pytest
from rich.console import Console

from ordinate.cli import status
from ordinate.cli.application import app
from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.progress import ignore
from ordinate.report.build import build_report
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.run import STATES
from ordinate.study.run_progress import study_progress
from ordinate.study.runner import run_study
from ordinate.study.study_folder import StudyFolder

# what a worker does after reporting step 2
FAULTS = {
    "segfault": "os.kill(os.getpid(), signal.SIGSEGV)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "leaves": "os._exit(0)",
    "hangs": "time.sleep(600)",
    "memory": "import torch; torch.empty(1 << 50)",
    "python memory": "raise MemoryError",
    "loud": "sys.stderr.write('y' * 5_000_000 + '\\nlast words\\n'); raise RuntimeError('no')",
    "unwritable": "class Odd(Exception): __reduce__ = None\nraise Odd('strange')",
}
EXPECTED = {
    "segfault": ("killed", "killed by SIGSEGV"),
    "killed": ("killed", "killed by SIGKILL; the system sends it when memory runs out"),
    "leaves": ("failed", "the process exited with code 0 without a message"),
    "hangs": ("killed", "it had no output for"),
    "memory": ("oom", "allocate memory"),
    "python memory": ("oom", "not enough memory"),
    "loud": ("failed", "RuntimeError: no"),
    "unwritable": ("failed", "Odd: strange"),
}


SCHEMES = dict(zip(FAULTS, ("rope", "alibi", "t5", "learned", "sinusoidal", "scalar", "none", "shaw"), strict=True))
# imported by Python itself (sitecustomize) when a worker or the fork server starts
SABOTAGE = """
import builtins, os, signal, sys, time
say = builtins.print

def print_(*values, **options):
    say(*values, **options)
    if values and str(values[0]).startswith('{"step": 2,'):
        exec(FAULTS.get(sys.argv[-1].removesuffix("-s0"), ""))

FAULTS = %r
builtins.print = print_
"""


@pytest.fixture
def plan(tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    for number in range(20):
        (text / f"{number}.txt").write_text("".join(f"line {number * word} is {word % 13}\n" for word in range(60)))
    sizes = {"length": 16, "steps": 4, "batch": 4, "width": 16, "layers": 1, "heads": 2, "warmup_steps": 2}
    measures = {
        "eval_samples": 4,
        "shuffle_samples": 4,
        "generated_texts": 0,
        "checkpoint_every": 2,
        "eval_length_multiples": (1,),
    }
    return resolve(Plan(text=str(text), schemes=("rope", "none"), **sizes, **measures))


@pytest.fixture
def sabotage(tmp_path, monkeypatch):
    """Inject the faults of FAULTS into the workers of the schemes in SCHEMES."""
    (tmp_path / "broken").mkdir()
    faults = {SCHEMES[name]: fault for name, fault in FAULTS.items()}
    (tmp_path / "broken" / "sitecustomize.py").write_text(SABOTAGE % faults)
    places = [str(tmp_path / "broken"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))


@pytest.mark.extended
def test_every_run_ends_in_one_state_and_the_others_continue(plan, tmp_path, sabotage):
    plan = plan.model_copy(update={"schemes": (*SCHEMES.values(), "kerple")})
    folder = run_study(plan, tmp_path / "study", LocalExecutor(2, 25.0), "ordinate study", ignore)
    found = {run.label: folder.status(run) for run in plan.runs()}
    assert found.pop("kerple") == "done"
    assert found == {SCHEMES[name]: state for name, (state, _) in EXPECTED.items()}
    results = {run.label: read_checksummed(folder.result(run)) for run in plan.runs()}
    for name, (_, message) in EXPECTED.items():
        assert message in results[SCHEMES[name]]["message"]
    page = build_report(folder.path).path.read_text(encoding="utf-8")
    assert "3 runs ended by a signal or timeout: “rope” seed 0, “alibi” seed 0 and “learned” seed 0" in page
    assert "2 runs ran out of memory: “sinusoidal” seed 0 and “scalar” seed 0" in page
    assert "3 runs failed: “t5” seed 0, “none” seed 0 and “shaw” seed 0" in page
    table = (folder.path / "results.csv").read_text().splitlines()
    assert sorted(line.split(",")[1] for line in table[1:]) == sorted(
        ["1 done", *(f"1 {one}" for one in found.values())]
    )


@pytest.mark.crash
def test_repeating_the_command_completes_all_of_them(plan, tmp_path, sabotage, monkeypatch):
    plan = plan.model_copy(update={"schemes": tuple(SCHEMES.values())})
    run_study(plan, tmp_path / "study", LocalExecutor(2, 25.0), "ordinate study", ignore)
    monkeypatch.undo()
    told = []
    folder = run_study(plan, tmp_path / "study", LocalExecutor(2), "ordinate study", told.append)
    assert [one.message for one in told if one.stage == "planned"] == [f"8 runs of 4 steps; {len(FAULTS)} to do"]
    assert {folder.status(run) for run in plan.runs()} == {"done"}


def test_a_result_with_an_unknown_state_counts_as_pending(plan, tmp_path):
    folder = StudyFolder(tmp_path)
    (run, _) = plan.runs()
    folder.run(run).mkdir(parents=True)
    for state in STATES:
        write_checksummed(folder.result(run), {"format": 2, "status": state, "run": run.as_record})
        assert folder.status(run) == state
    write_checksummed(folder.result(run), {"format": 2, "status": "fine", "run": run.as_record})
    assert folder.status(run) == "pending"


def test_status_shows_the_progress_of_every_run(plan, tmp_path, capsys):
    folder = StudyFolder(tmp_path / "study")
    with folder.lock():
        folder.open(plan, {"text": {"name": "x"}}, "ordinate study")
    rope, none = plan.runs()
    losses = folder.run(none) / "checkpoints" / "metrics.jsonl"
    losses.parent.mkdir(parents=True)
    # the last line is incomplete
    losses.write_text("".join(f'{{"step": {step}, "loss": 2.5}}\n' for step in (1, 2, 3)) + '{"step": 4, "lo')
    folder.run(rope).mkdir(parents=True)
    folder.record_end(rope, "killed", "SIGKILL ended it")
    app(["status", str(folder.path)])
    said = capsys.readouterr().out
    assert "2 runs: 1 killed, 1 pending; no process is working" in said
    assert "3/4  2.500" in said
    with folder.lock():
        app(["status", str(folder.path)])
        assert "process" in capsys.readouterr().out


def test_of_many_runs_status_shows_those_running_or_failed(plan, tmp_path, monkeypatch):
    folder, many = StudyFolder(tmp_path / "study"), plan.model_copy(update={"seeds": 3})
    monkeypatch.setattr(status, "MAX_ROWS", 4)
    with folder.lock():
        folder.open(many, {"text": {"name": "x"}}, "ordinate study")
    for run, state in zip(many.runs(), ("done", "killed", "done", "done", "done"), strict=False):
        folder.run(run).mkdir(parents=True)
        folder.record_end(run, state, "")
    rows = study_progress(folder, many)
    console = Console(record=True, width=100)
    console.print(status.progress_table(folder, many, rows))
    said = console.export_text()
    assert "none-s0  killed" in said
    assert "rope-s0" not in said
    assert "and 5 more" in said
    assert "6 runs: 4 done, 1 killed, 1 pending" in said
    # finished runs are not read again
    for run in many.runs():
        folder.result(run).unlink(missing_ok=True)
    assert [row.stage for row in study_progress(folder, many, rows)] == [
        "done",
        "pending",
        "done",
        "done",
        "done",
        "pending",
    ]


def test_status_of_a_folder_without_a_study_is_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"has no study\.json; check the path"):
        app(["status", str(tmp_path)])
