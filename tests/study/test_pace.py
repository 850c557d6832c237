"""How runs share a machine: measured, kept, and never changed on the way."""

from contextlib import nullcontext

import pytest

from ordinate.files import read_sealed
from ordinate.study import pace
from ordinate.study.conduct import conduct
from ordinate.study.engine import Engine
from ordinate.study.engines import local
from ordinate.study.engines.local import Local
from ordinate.study.folder import Folder, OtherStudyError
from ordinate.study.pace import Pace, measured, ways
from ordinate.study.plan import Plan
from ordinate.study.settle import settle

SIZES = {"steps": 3, "batch": 4, "width": 16, "layers": 1, "heads": 2, "warmup": 1, "fresh": 20, "multiples": (1,)}


class Quiet:
    def reading(self, name):
        pass

    def planned(self, plan, todo):
        pass

    def news(self, news):
        pass


class Idle(Engine):
    """Carries nothing out."""

    def pace(self, folder, plan, runs):
        return Pace(2)

    def carry_out(self, folder, plan, runs, watch):
        pass


@pytest.fixture(scope="module")
def plan():
    return settle(Plan(task="copy:count=4", schemes=("rope",), **SIZES))


@pytest.fixture
def folder(plan, tmp_path):
    return conduct(plan, tmp_path / "study", Idle(), "ordinate study", Quiet())


def test_ways_use_the_cores_but_no_more_than_there_are_runs():
    assert ways(8, 100) == [(8, 1), (4, 2), (2, 4), (1, 8)]
    assert ways(2, 100) == [(2, 1), (1, 2)]
    assert ways(6, 3) == [(3, 1), (3, 2), (1, 4)]
    assert ways(2, 1) == [(1, 1), (1, 2)]
    assert ways(1, 5) == [(1, 1)]


@pytest.mark.parametrize(("speeds", "threads"), [((10.0, 10.3), 1), ((10.0, 12.0), 2), ((10.0, 4.0), 1)])
def test_more_threads_are_taken_only_where_they_pay(plan, folder, monkeypatch, speeds, threads):
    monkeypatch.setattr(pace, "_speed", lambda trials, each: speeds[each - 1])
    monkeypatch.setattr(pace, "_trials", lambda *_: nullcontext([]))
    found = measured(folder, plan.runs(), 2)
    assert found.threads == threads
    assert [(way.workers, way.threads, way.speed) for way in found.tried] == [(1, 1, speeds[0]), (1, 2, speeds[1])]
    assert f"threads of a run: {threads} (steps a second of runs x threads: 1 x 1: 10.0" in str(found)


def test_trials_train_the_model_of_the_study(plan, folder):
    found = measured(folder, plan.runs(), 2)
    assert [(way.workers, way.threads) for way in found.tried] == [(1, 1), (1, 2)]
    assert all(way.speed > 0 for way in found.tried)


def test_a_trial_that_cannot_begin_leaves_one_thread(plan, folder, monkeypatch):
    monkeypatch.setattr(pace.sys, "executable", "/bin/false")
    assert measured(folder, plan.runs(), 2) == Pace(1)


def test_what_is_said_wins_and_short_studies_are_not_tried(plan, folder, monkeypatch):
    told, long = [], plan.model_copy(update={"steps": 5000})
    monkeypatch.setattr(local, "measured", lambda *_: Pace(2))
    monkeypatch.setattr(local, "cores", lambda: 4)
    runs = plan.runs()
    assert Local(tell=told.append).pace(folder, long, runs) == Pace(2)
    assert told == ["threads of a run: 2"]
    assert Local(3).pace(folder, long, runs) == Pace(1)
    assert Local().pace(folder, plan, runs) == Pace(1)
    assert Local().pace(folder, long.model_copy(update={"threads": 3}), runs) == Pace(3)


def test_the_pace_is_kept_and_going_on_with_another_is_refused(plan, folder):
    assert read_sealed(folder.pace) == {"threads": 2, "tried": []}
    assert Folder(folder.path).threads() == 2
    folder.check(plan)
    folder.check(plan.model_copy(update={"threads": 2}))
    with pytest.raises(OtherStudyError, match="threads: 2 -> 1"):
        folder.check(plan.model_copy(update={"threads": 1}))
