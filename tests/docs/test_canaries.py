import os
import subprocess
import sys

import canaries
import pytest
from canaries import (
    CHANGES,
    FILE,
    MEASURED,
    MOST,
    ROUNDING,
    STEPS,
    TOLERANCE,
    canary,
    canary_runs,
    check,
    folders,
    stale,
)

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.models import backbone
from ordinate.study.plan import Plan
from ordinate.study.run import Cell
from ordinate.study.study_folder import StudyFolder
from ordinate.training import lightning, optimiser

NAMES = [study.path.name for study in folders()]
SMALL = {
    "schemes": ("none", "rope", "alibi"),
    "width": 16,
    "layers": 1,
    "heads": 2,
    "length": 31,
    "steps": 60,
    "batch": 32,
    "warmup_steps": 5,
    "precision": "bf16",
    "eval_length_multiples": (1,),
}


def study_of(path, **options):
    study = StudyFolder(path)
    path.mkdir()
    study.open(Plan(**SMALL | options), {"text": {"name": "stdlib"}}, "ordinate study")
    return study


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A study with its canary."""
    study = study_of(tmp_path_factory.mktemp("studies") / "small")
    write_checksummed(study.path / FILE, canary(study))
    return study


@pytest.mark.extended
def test_the_same_code_has_the_same_losses_to_the_bit(small):
    stored, again = read_checksummed(small.path / FILE), canary(small)
    assert stored == again
    assert [len(losses) for losses in stored["losses"].values()] == [STEPS] * 3
    assert stale(small) == ""
    assert check(small, again) == []


@pytest.mark.extended
def test_the_text_is_not_that_of_the_study(small):
    stored = read_checksummed(small.path / FILE)
    assert stored["changes"] == {
        "text": "LICENSE",
        "encoding": "utf-8",
        "batch": 4,
        "precision": "fp32",
        "threads": 1,
    }
    text = stored["data"]["all"]["text"]
    assert (text["name"], text["bytes"]) == ("LICENSE", (canaries.ROOT / "LICENSE").stat().st_size)
    other = {**stored, "data": {"all": {"text": {**text, "sha256": "0" * 64}}}}
    (line,) = check(small, other)
    assert line.startswith("small: the data has changed: all: ")


@pytest.mark.extended
def test_the_learning_rates_are_those_of_the_whole_run(small, monkeypatch):
    stored = read_checksummed(small.path / FILE)["losses"]
    monkeypatch.setattr(canaries, "STEPS", 60)
    whole = canary(small)["losses"]
    assert {name: len(losses) for name, losses in whole.items()} == dict.fromkeys(stored, 60)
    assert {name: losses[:STEPS] for name, losses in whole.items()} == stored


def warm_up_off_by_one(patch):
    rate = optimiser.learning_rate_at
    patch.setattr(lightning, "learning_rate_at", lambda step, **options: rate(step + 1, **options))


def larger_initial_weights(patch):
    patch.setattr(backbone, "INITIAL_STD", 1.02 * backbone.INITIAL_STD)


def no_decay(patch):
    make = lightning.make_optimiser
    patch.setattr(lightning, "make_optimiser", lambda model, rate, decay: make(model, rate, 0.0))


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("mutant", [warm_up_off_by_one, larger_initial_weights, no_decay])
def test_code_that_changes_the_losses_is_noticed(small, monkeypatch, mutant):
    mutant(monkeypatch)
    assert [line.partition(":")[0] for line in check(small, canary(small))] == [
        f"small/{name}-s0" for name in ("none", "rope", "alibi")
    ]


@pytest.mark.extended
@pytest.mark.parametrize("change", CHANGES)
def test_changes_that_are_measured_are_noticed(small, change):
    found = check(small, canary(small, **CHANGES[change]))
    # a run without a scheme has none to leave out
    assert len(found) == (2 if "scheme" in CHANGES[change] else 3)


@pytest.mark.extended
def test_rounding_is_tolerated_where_processors_differ_and_only_there(small):
    stored = read_checksummed(small.path / FILE)
    moved = {name: [loss + TOLERANCE / 2 for loss in losses] for name, losses in stored["losses"].items()}
    again = {**stored, "losses": moved}
    assert all("not equal to the bit" in line for line in check(small, again))
    assert len(check(small, again)) == 3
    other = {**again, "provenance": {**stored["provenance"], "processor": "another"}}
    assert check(small, other) == []
    moved["rope-s0"] = [loss + 2 * TOLERANCE for loss in stored["losses"]["rope-s0"]]
    (line,) = check(small, other)
    assert line.startswith("small/rope-s0: not reproduced: losses differ by")
    moved["rope-s0"] = moved["rope-s0"][:7]
    (line,) = check(small, other)
    assert line == f"small/rope-s0: not reproduced: 7 steps here, {STEPS} in the study"


def test_of_runs_in_which_rounding_grows_only_the_first_steps_are_compared(small, monkeypatch):
    assert canaries._steady_steps([1e-7] * 12 + [1e-3] * 8) == 12
    assert canaries._steady_steps([1e-7] * STEPS) == STEPS
    stored = read_checksummed(small.path / FILE)
    losses = {name: list(one) for name, one in stored["losses"].items()}
    losses["rope-s0"][12] += 1
    again = {**stored, "losses": losses, "provenance": {**stored["provenance"], "processor": "another"}}
    assert len(check(small, again)) == 1
    monkeypatch.setattr(canaries, "steady", lambda study: {"rope-s0": 12})
    assert check(small, again) == []
    losses["rope-s0"][11] += 1
    assert len(check(small, again)) == 1


def test_a_canary_of_another_plan_is_stale(tmp_path):
    study = study_of(tmp_path / "one")
    assert stale(study) == "one has no canary.json"
    record = {**canaries._of(study), "losses": {name: [] for name in ("none-s0", "rope-s0", "alibi-s0")}}
    write_checksummed(study.path / FILE, record)
    assert stale(study) == ""
    other = study_of(tmp_path / "other", learning_rate=1e-3)
    write_checksummed(other.path / FILE, record)
    assert stale(other).startswith("other has the canary.json of another plan: plan: '")
    write_checksummed(study.path / FILE, {**record, "losses": {"none-s0": []}})
    assert "runs: ['none-s0'] -> ['none-s0', 'rope-s0', 'alibi-s0']" in stale(study)
    (study.path / FILE).write_text((study.path / FILE).read_text().replace("rope", "rose").replace("none", "nine"))
    with pytest.raises(ValueError, match="a file must match its checksum"):
        stale(study)


def test_the_first_seed_of_every_arm_and_cell_is_trained():
    assert [run.name for run in canary_runs(Plan(**SMALL, seeds=3))] == ["none-s0", "rope-s0", "alibi-s0"]
    cells = tuple(Cell(values={"width": width}, changes={"width": width}) for width in (16, 32))
    assert [run.cell["width"] for run in canary_runs(Plan(**SMALL, cells=cells))] == [16] * 3 + [32] * 3
    many = Plan(**SMALL | {"schemes": tuple(f"rope:theta={number}" for number in range(2, 72))})
    chosen, every = canary_runs(many), many.runs()
    assert len(set(run.name for run in chosen)) == MOST
    assert (chosen[0], chosen[-1]) == (every[0], every[-1])


def test_data_that_differs_between_machines_is_refused():
    with pytest.raises(ValueError, match="a canary needs fixed data; task translation reads docstrings; give"):
        canaries.changes(Plan(model="encoder-decoder"))
    with pytest.raises(ValueError, match="a canary needs new models; got a trained one, somewhere; give"):
        canaries.changes(Plan(base="somewhere"))
    assert "text" not in canaries.changes(Plan(task="copy", batch=2))
    assert canaries.changes(Plan(task="copy", batch=2))["batch"] == 2
    with pytest.raises(ValueError, match="quick"):
        folders(["quik"])


def test_the_command_fails_where_a_canary_differs(small, monkeypatch):
    stored = read_checksummed(small.path / FILE)
    monkeypatch.setattr(canaries, "folders", lambda names: [small])
    monkeypatch.setattr(canaries, "canary", lambda study: stored)
    monkeypatch.setattr(sys, "argv", ["canaries.py", "small", "--check"])
    canaries.main()
    losses = {**stored["losses"], "rope-s0": [9.0] * STEPS}
    monkeypatch.setattr(canaries, "canary", lambda study: {**stored, "losses": losses})
    with pytest.raises(
        SystemExit, match=r"small/rope-s0: not reproduced: .*\nif this is intended, train the studies"
    ):
        canaries.main()
    # a mistyped option must not write anything
    with pytest.raises(SystemExit, match="2"):
        canaries.options(["small", "--chek"])


@pytest.mark.parametrize("name", NAMES)
def test_every_committed_study_has_its_canary(name):
    (study,) = folders([name])
    assert not stale(study), "write it: ./dev canaries"


@pytest.mark.parametrize("name", NAMES)
def test_the_tolerance_lies_between_rounding_and_a_small_change(name):
    measured = read_checksummed(MEASURED)["studies"]
    assert sorted(measured) == sorted(NAMES), "measure it: ./dev canaries --measure STUDY"
    assert all(10 * measured[name][what][1] < TOLERANCE for what in ROUNDING)
    # every run shows a change, and some run clearly
    changed = [measured[name][what] for what in CHANGES if what in measured[name]]
    assert all(smallest > TOLERANCE and largest > 5 * TOLERANCE for smallest, largest in changed)


@pytest.mark.extended
@pytest.mark.parametrize("name", NAMES)
def test_the_first_steps_of_committed_studies_are_the_same(name):
    # in a process of its own: without the check of tensor types it takes half the time
    command = [sys.executable, str(canaries.ROOT / ".ci" / "canaries.py"), name, "--check"]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert found.returncode == 0, found.stdout + found.stderr
