"""Thread autotuning: measured once, stored, and never changed when a study is resumed."""

import sys
from contextlib import nullcontext

import pytest

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.progress import Progress, ignore
from ordinate.study import thread_autotuning
from ordinate.study.executor import Executor
from ordinate.study.executors import local
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.plan import Plan
from ordinate.study.presets import TEXT_PRESETS
from ordinate.study.resolve import resolve
from ordinate.study.runner import _planned, run_study
from ordinate.study.study_folder import OtherStudyError, StudyFolder
from ordinate.study.thread_autotuning import (
    MIN_STEPS_TO_TUNE,
    ThreadChoice,
    ThreadTiming,
    measure_threads,
    thread_splits,
)

SIZES = {
    "steps": 3,
    "batch": 4,
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warmup_steps": 1,
    "task_samples": 20,
    "eval_length_multiples": (1,),
}


class Idle(Executor):
    """Executor that does nothing."""

    def choose_threads(self, folder, plan, runs, on_progress):
        return ThreadChoice(2)

    def run_all(self, folder, plan, runs, on_progress):
        pass


@pytest.fixture(scope="module")
def plan():
    return resolve(Plan(task="copy:count=4", schemes=("rope",), **SIZES))


@pytest.fixture
def folder(plan, tmp_path):
    return run_study(plan, tmp_path / "study", Idle(), "ordinate study", ignore)


def test_thread_splits_use_all_cores_but_no_more_processes_than_runs():
    assert thread_splits(8, 100) == [(8, 1), (4, 2), (2, 4), (1, 8)]
    assert thread_splits(2, 100) == [(2, 1), (1, 2)]
    assert thread_splits(6, 3) == [(3, 1), (3, 2), (1, 4)]
    assert thread_splits(2, 1) == [(1, 1), (1, 2)]
    assert thread_splits(1, 5) == [(1, 1)]


@pytest.mark.parametrize(("speeds", "threads"), [((10.0, 10.3), 1), ((10.0, 12.0), 2), ((10.0, 4.0), 1)])
def test_more_threads_are_chosen_only_if_faster(plan, folder, monkeypatch, speeds, threads):
    monkeypatch.setattr(thread_autotuning, "_speed", lambda trials, each: speeds[each - 1])
    monkeypatch.setattr(thread_autotuning, "_trials", lambda *_: nullcontext([]))
    found = measure_threads(folder, plan.runs(), 2)
    assert found.threads == threads
    assert [(way.workers, way.threads, way.speed) for way in found.tried] == [(1, 1, speeds[0]), (1, 2, speeds[1])]
    assert f"threads per run: {threads} (steps per second by runs x threads: 1 x 1: 10.0" in str(found)


@pytest.mark.extended
def test_measuring_processes_train_the_model_of_the_study(plan, folder):
    found = measure_threads(folder, plan.runs(), 2)
    assert [(way.workers, way.threads) for way in found.tried] == [(1, 1), (1, 2)]
    assert all(way.speed > 0 for way in found.tried)


def test_a_failing_measurement_leaves_one_thread(plan, folder, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert measure_threads(folder, plan.runs(), 2) == ThreadChoice(1)


def test_given_threads_are_used_and_short_studies_are_not_measured(plan, folder, monkeypatch):
    told, long = [], plan.model_copy(update={"steps": 5000})
    monkeypatch.setattr(local, "measure_threads", lambda *_: ThreadChoice(2))
    monkeypatch.setattr(local, "available_cores", lambda: 4)
    runs = plan.runs()
    assert LocalExecutor().choose_threads(folder, long, runs, told.append) == ThreadChoice(2)
    assert told == [Progress(message="threads per run: 2")]
    assert LocalExecutor(3).choose_threads(folder, long, runs, ignore) == ThreadChoice(1)
    assert LocalExecutor().choose_threads(folder, plan, runs, ignore) == ThreadChoice(1)
    assert LocalExecutor().choose_threads(
        folder, long.model_copy(update={"threads": 3}), runs, ignore
    ) == ThreadChoice(3)


def test_the_number_of_threads_is_kept_and_resuming_with_another_is_rejected(plan, folder):
    assert read_checksummed(folder.threads_file) == {"threads": 2, "tried": []}
    assert StudyFolder(folder.path).threads() == 2
    folder.check(plan)
    folder.check(plan.model_copy(update={"threads": 2}))
    with pytest.raises(OtherStudyError, match="threads: 2 -> 1"):
        folder.check(plan.model_copy(update={"threads": 1}))


def test_how_long_training_takes_is_told_from_the_measured_speed(tmp_path):
    folder, plan = StudyFolder(tmp_path), Plan(schemes=("none", "rope"), steps=500)
    assert ThreadChoice.read(folder) is None
    chosen = ThreadChoice(1, (ThreadTiming(2, 1, 5.0), ThreadTiming(1, 2, 4.0)))
    write_checksummed(folder.threads_file, chosen.as_record)
    found = ThreadChoice.read(folder)
    assert found == chosen
    assert found.speed == 5.0
    runs = plan.runs()
    # 1000 steps, then 500, at 5 a second
    told = "training takes about 3 minutes here, before evaluation (measured: 5.0 steps a second)"
    assert told in _planned(plan, runs, found).message
    assert "about 2 minutes here" in _planned(plan, runs[1:], found).message
    assert _planned(plan, [], found).message == "2 runs of 500 steps; 0 to do"
    assert "here" not in _planned(plan, runs, ThreadChoice(1)).message


def test_the_default_study_is_measured_so_that_it_says_how_long_it_takes():
    plan = Plan(**TEXT_PRESETS["quick"])
    assert plan.steps * len(plan.runs()) >= MIN_STEPS_TO_TUNE


def test_the_runs_of_the_leading_schemes_count_in_the_duration(tmp_path):
    chosen = ThreadChoice(1, (ThreadTiming(2, 1, 5.0),))
    plan = Plan(schemes=("none", "rope", "alibi"), steps=500, leader_seeds=1)
    assert plan.leader_seeds
    # three runs, then two to four more: 3000 steps at 5 a second
    assert "training with those takes about 10 minutes here" in _planned(plan, plan.runs(), chosen).message
    # resumed with one of the three runs left
    assert "training with those takes about 7 minutes here" in _planned(plan, plan.runs()[2:], chosen).message
