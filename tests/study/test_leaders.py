"""Further seeds of the leading schemes: which they are, that they are trained, and that resuming keeps them."""

import pytest
from rich.console import Console

from ordinate.cli.study import run as run_command
from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.progress import ignore
from ordinate.study import worker
from ordinate.study.leaders import leading_arms
from ordinate.study.plan import Plan
from ordinate.study.run_progress import study_progress
from ordinate.study.runner import run_study
from ordinate.study.study_folder import OtherStudyError
from tests.study.conftest import Here


class Failing(Here):
    """Executor whose first runs fail."""

    def __init__(self, failures):
        super().__init__()
        self.failures = failures

    def run_all(self, folder, plan, runs, on_progress):
        for run in runs:
            if self.failures:
                self.failures -= 1
                self.carried.append(run.name)
            else:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(worker, "print_update", lambda **update: None)
                    super().run_all(folder, plan, [run], on_progress)


FOUR = {"task": ("copy:count=4",), "schemes": ("none", "rope", "alibi", "t5"), "width": (8,)}


@pytest.fixture
def values(designed, carried, tmp_path):
    """A study of four schemes without further seeds, whose results get these accuracies."""
    plan = designed(**FOUR, leader_seeds=0)
    folder, _ = carried(plan, tmp_path)

    def write(near, far):
        for run, pair in zip(plan.runs(), zip(near, far, strict=True), strict=True):
            result = read_checksummed(folder.result(run))
            for row, value in zip(result["lengths"], pair, strict=True):
                row["accuracy"] = value
            write_checksummed(folder.result(run), result)
        return folder, plan

    return write


@pytest.mark.extended
def test_the_best_two_at_both_ends_lead(values):
    folder, plan = values((0.4, 0.3, 0.2, 0.1), (0.1, 0.4, 0.2, 0.3))
    assert leading_arms(folder, plan) == ("none", "rope", "t5")


@pytest.mark.extended
def test_a_scheme_without_a_value_does_not_lead(values):
    folder, plan = values((0.4, 0.3, 0.2, 0.1), (None, 0.1, 0.2, 0.3))
    assert leading_arms(folder, plan) == ("none", "rope", "t5", "alibi")
    write_checksummed(folder.result("none-s0"), read_checksummed(folder.result("none-s0")) | {"status": "diverged"})
    assert leading_arms(folder, plan) == ("rope", "alibi", "t5")


def test_leaders_are_trained_with_another_seed_and_kept_when_resuming(designed, carried, tmp_path):
    plan = designed(**FOUR)
    assert plan.leader_seeds == 1
    messages = []
    folder, names = carried(plan, tmp_path, lambda progress: messages.append(progress.message))
    stored = folder.plan()
    assert names[:4] == [f"{name}-s0" for name in FOUR["schemes"]]
    assert sorted(names[4:]) == sorted(f"{name}-s1" for name in stored.leaders)
    assert 2 <= len(stored.leaders) <= 4
    assert any("then 2 to 4 more, of the leading ones with another seed" in text for text in messages)
    assert [row.run.name for row in study_progress(folder, stored)] == [run.name for run in stored.runs()]
    again, more = carried(plan, tmp_path)
    assert (more, again.plan()) == ([], stored)


def test_runs_that_fail_are_not_trained_twice_by_one_command(designed, carried, tmp_path):
    """With no run that succeeds there is no leader, and the runs of the first seed are not repeated."""
    plan, messages, engine = designed(**FOUR), [], Failing(4)
    run_study(plan, tmp_path, engine, "ordinate study", lambda progress: messages.append(progress.message))
    assert engine.carried == [f"{name}-s0" for name in FOUR["schemes"]]
    assert not any("another seed:" in text for text in messages)
    # one that failed is tried again by the next command, not with the further seeds of this one
    engine = Failing(1)
    run_study(plan, tmp_path, engine, "ordinate study", ignore)
    assert engine.carried[:4] == [f"{name}-s0" for name in FOUR["schemes"]]
    assert {name[-3:] for name in engine.carried[4:]} == {"-s1"}


@pytest.mark.extended
def test_a_study_that_ended_before_the_leaders_were_chosen_goes_on_with_its_own_code_only(
    designed, carried, tmp_path, monkeypatch
):
    carried(designed(**FOUR, leader_seeds=0), tmp_path)
    plan = designed(**FOUR, leader_seeds=1)
    with monkeypatch.context() as patch:
        patch.setattr("ordinate.study.study_folder.provenance_differences", lambda old, new: ["code: a -> b"])
        with pytest.raises(OtherStudyError, match="code: a -> b"):
            carried(plan, tmp_path)
    _, names = carried(plan, tmp_path)
    assert all(name.endswith("-s1") for name in names)
    assert len(names) >= 2


def test_the_number_of_further_seeds_is_read_from_the_number_of_schemes(designed):
    assert designed(**FOUR | {"schemes": ("none", "rope")}).leader_seeds == 0
    assert designed(**FOUR, seeds=2).leader_seeds == 0
    with pytest.raises(ValueError, match="--leader-seeds needs at least 3 schemes or mixers"):
        designed(**FOUR | {"schemes": ("none", "rope")}, leader_seeds=1)
    with pytest.raises(ValueError, match="--leader-seeds needs a study without a grid"):
        designed(**FOUR | {"width": (8, 16)}, leader_seeds=1)
    assert designed(**FOUR | {"width": (8, 16)}).leader_seeds == 0


def test_plans_written_before_this_option_have_no_further_seeds():
    old = Plan(schemes=("none", "rope", "alibi"))
    assert (old.leader_seeds, len(old.runs())) == (None, 3)
    assert old.digest() == old.model_copy(update={"leader_seeds": 0, "leaders": ("rope",)}).digest()


@pytest.mark.extended
def test_the_command_counts_the_runs_of_leaders_that_did_not_succeed(designed, carried, tmp_path, monkeypatch):
    plan = designed(**FOUR)
    folder, _ = carried(plan, tmp_path)
    failed = next(run for run in folder.plan().runs() if run.seed == 1)
    write_checksummed(folder.result(failed), read_checksummed(folder.result(failed)) | {"status": "failed"})
    monkeypatch.setattr("ordinate.cli.study.run_study", lambda *given, **options: folder)
    _, unsuccessful = run_command(plan, tmp_path, Here(), Console(quiet=True))
    assert unsuccessful == [failed.name]
