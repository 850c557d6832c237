"""What results were made by is recorded with each, and a change of it is neither accepted silently nor hidden."""

import pytest

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.report.build import build_report
from ordinate.report.provenance_text import made_by, provenance_warning
from ordinate.report.read import Study
from ordinate.study import manifest, study_folder, worker
from ordinate.study.study_folder import OtherStudyError


@pytest.fixture
def started(designed, carried, tmp_path):
    folder, _ = carried(designed(**PLAN), tmp_path / "study")
    return folder


PLAN = {"task": ("copy:count=4",), "schemes": ("none",), "width": (16,), "eval_length_multiples": (1,)}


@pytest.fixture
def changed(monkeypatch):
    """Another version of Ordinate, with other code."""
    before = manifest.provenance()
    after = {**before, "code": "0" * 64, "versions": {**before["versions"], "ordinate": "9.9"}}
    monkeypatch.setattr(study_folder, "provenance", lambda *_: after)
    monkeypatch.setattr(worker, "run_provenance", lambda *_: after)
    environment = {**manifest.environment(), "code": after["code"], "versions": after["versions"]}
    monkeypatch.setattr(study_folder, "environment", lambda *_: environment)
    return after


def test_each_result_says_what_it_was_made_by(started):
    made = read_checksummed(started.result("none-s0"))["provenance"]
    assert made == manifest.run_provenance()
    assert set(made) == {"code", "versions", "python", "processor", "instructions", "threads"}


def test_a_study_is_not_resumed_by_other_code_or_versions(started, designed, carried, changed):
    about = started.read()
    message = r"code: '\w{12}' -> '000000000000'\n  ordinate: '[\d.]+' -> '9\.9'\nrestore them.*--allow-changed-code"
    with pytest.raises(OtherStudyError, match=message):
        carried(designed(**PLAN, seeds=2), started.path)
    assert started.read() == about


def test_a_complete_study_may_be_shown_by_another_version(started, designed, carried, changed):
    assert carried(designed(**PLAN), started.path)[1] == []


@pytest.mark.extended
def test_what_resumed_a_study_is_recorded_and_reported(started, designed, carried, changed):
    about = started.read()
    assert carried(designed(**PLAN, seeds=2), started.path, allow_changed_code=True)[1] == ["none-s1"]
    # once accepted, the same code may go on
    assert carried(designed(**PLAN, seeds=3), started.path)[1] == ["none-s2"]
    resumed = started.read()
    assert {name: resumed[name] for name in ("versions", "code")} == {
        name: about[name] for name in ("versions", "code")
    }
    assert resumed["resumed_by"] == [changed]
    assert read_checksummed(started.result("none-s1"))["provenance"] == changed
    verdict = " ".join(build_report(started.path).verdict)
    told = "2 runs (none-s1, none-s2): ordinate 9.9, source 000000000000; 1 run (none-s0): ordinate "
    assert f"Not all runs were made by the same code and versions ({told}" in verdict
    assert "part of a difference may be due to that" in verdict
    page = build_report(started.path).path.read_text(encoding="utf-8")
    assert "<dt>ordinate 9.9, source 000000000000</dt><dd>none-s1, none-s2</dd>" in page


def test_results_that_do_not_say_it_are_of_unknown_origin(started):
    result = read_checksummed(started.result("none-s0"))
    old = {key: value for key, value in result.items() if key != "provenance"}
    write_checksummed(started.result("none-s0"), old)
    verdict = " ".join(build_report(started.path).verdict)
    assert "same code and versions" not in verdict
    both = Study(started.read(), [old, result], [], [])
    assert made_by([both])[0] == ("unknown", ("none-s0",), {"none"})
    assert "(1 run (none-s0): unknown; 1 run (none-s0): ordinate " in provenance_warning([both])[0]


def test_arms_made_by_different_code_are_told_apart(started):
    result = read_checksummed(started.result("none-s0"))
    made = {**result["provenance"], "code": "f" * 64}
    others = [
        result | {"run": {"name": f"rope-s{seed}", "label": "rope", "seed": seed}, "provenance": made}
        for seed in range(6)
    ]
    (line,) = provenance_warning([Study(started.read(), [result, *others], [], [])])
    assert (
        "6 runs (rope-s0, rope-s1, rope-s2, rope-s3 and 2 more): source ffffffffffff; 1 run (none-s0): source" in line
    )
    assert "none of them made every scheme, so a difference between schemes may be due to that" in line
    both = result | {"run": {"name": "none-s1", "label": "none", "seed": 1}, "provenance": made}
    (line,) = provenance_warning([Study(started.read(), [result, both, *others], [], [])])
    assert "part of a difference may be due to that" in line
