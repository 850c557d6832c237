"""Every reader of results refuses a damaged one, and the same command trains its run again."""

from pathlib import Path

import pytest

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.study.result_file import read_result
from ordinate.study.study_folder import StudyFolder

STUDIES = Path(__file__).parents[2] / "studies"
PLAN = {"task": ("copy:count=4",), "schemes": ("none", "rope"), "width": (16,), "eval_length_multiples": (1,)}


def test_every_committed_result_is_sealed():
    # decisions are written from the results, and compared with them by lint
    files = sorted(path for path in STUDIES.rglob("*.json") if path.name != "decision.json")
    assert len(files) > 100
    for path in files:
        found = read_result(path) if path.match("runs/*/result.json") else read_checksummed(path)
        assert "checksum" not in found


@pytest.mark.extended
def test_a_damaged_result_is_told_and_its_run_trained_again(designed, carried, tmp_path):
    folder, trained = carried(designed(**PLAN), tmp_path / "study")
    assert trained == ["none-s0", "rope-s0"]
    kept = folder.result("none-s0").read_bytes()
    whole = folder.result("rope-s0").read_bytes()
    folder.result("rope-s0").write_bytes(whole[:-1])
    told = []
    folder, trained = carried(
        designed(**PLAN), tmp_path / "study", on_progress=lambda event: told.append(event.message)
    )
    assert trained == ["rope-s0"]
    (line,) = [line for line in told if "trained again" in line]
    assert "rope-s0: a file must match its checksum" in line
    assert str(folder.result("rope-s0")) in line
    assert folder.result("none-s0").read_bytes() == kept
    assert {**read_result(folder.result("rope-s0")), "cost": 0} == {**_parsed(whole, tmp_path), "cost": 0}


def _parsed(text, place):
    (place / "rope-s0").mkdir()
    path = place / "rope-s0" / "result.json"
    path.write_bytes(text)
    return read_result(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "needs a format and a state that this version knows; .* has 99 and 'done'"),
        ({"status": "perfect"}, "has 2 and 'perfect'"),
        ({"run": {"name": "other-s0"}}, "must be in the folder of its run; .*none-s0.* is that of other-s0; repeat"),
        ({"run": None}, "is that of None"),
    ],
)
def test_a_result_of_another_run_format_or_state_is_refused(tmp_path, change, message):
    path = StudyFolder(tmp_path).result("none-s0")
    path.parent.mkdir(parents=True)
    write_checksummed(path, {"format": 2, "status": "done", "run": {"name": "none-s0"}} | change)
    with pytest.raises(ValueError, match=message):
        read_result(path)
