import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ordinate.core.atomic_files import unfinished_files, write_checksummed
from ordinate.study.plan import Plan
from ordinate.study.study_folder import OtherStudyError, StudyFolder

TEXT = {"text": {"name": "a", "sha256": "00"}}


def test_a_plan_is_written_once_and_read_again(tmp_path):
    folder = StudyFolder(tmp_path / "new")
    folder.check(Plan(steps=3))
    with folder.lock():
        folder.open(Plan(steps=3), TEXT, "ordinate study")
        written = folder.study.read_bytes()
        folder.open(Plan(steps=3), TEXT, "another command")
    assert folder.plan() == Plan(steps=3)
    assert folder.study.read_bytes() == written
    about = json.loads(written)
    assert about["machine"]["cores"] >= 1
    assert about["versions"]["torch"].startswith("2.")
    folder.check(Plan(steps=3, checkpoint_every=9))


def test_another_plan_is_refused_key_by_key(tmp_path):
    folder = StudyFolder(tmp_path)
    folder.open(Plan(), TEXT, "x")
    with pytest.raises(OtherStudyError, match=r"(?s)length: 128 -> 64\n  steps: 500 -> 9\n.*another --out"):
        folder.check(Plan(steps=9, length=64))


def test_another_text_is_rejected(tmp_path):
    folder = StudyFolder(tmp_path)
    folder.open(Plan(), TEXT, "x")
    with pytest.raises(OtherStudyError, match=r"text\.sha256: '00' -> '11'"):
        folder.open(Plan(), {"text": {"name": "a", "sha256": "11"}}, "x")


def test_a_folder_of_other_things_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(OtherStudyError, match="holds other files; give another --out"):
        StudyFolder(tmp_path).check(Plan())
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_damaged_plan_is_rejected(tmp_path):
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(OtherStudyError, match="cannot be read"):
        StudyFolder(tmp_path).check(Plan())


def test_an_interrupted_start_is_resumed(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / ".lock").write_text("")
    StudyFolder(tmp_path).check(Plan())


def test_what_a_killed_process_left_half_written_neither_stops_a_study_nor_stays(tmp_path, monkeypatch):
    folder, plan = StudyFolder(tmp_path), Plan(schemes=("rope",))
    with monkeypatch.context() as patch:
        # as if killed: the temporary file is neither renamed nor deleted
        patch.setattr(os, "replace", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(Path, "unlink", lambda *given, **options: None)
        with pytest.raises(KeyboardInterrupt):
            folder.open(plan, TEXT, "x")
    assert not folder.study.exists()
    assert len(unfinished_files(tmp_path)) == 1
    folder.check(plan)
    with folder.lock():
        folder.open(plan, TEXT, "x")
    assert not unfinished_files(tmp_path)


def test_only_one_process_writes(tmp_path):
    code = "import sys, pathlib, ordinate.study.study_folder as f\n"
    code += "with f.StudyFolder(pathlib.Path(sys.argv[1])).lock(): 0"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with StudyFolder(tmp_path).lock():
        other = subprocess.run(command, capture_output=True, text=True)
    assert other.returncode == 1
    assert "is writing to" in other.stderr
    assert subprocess.run(command).returncode == 0


def test_missing_runs_are_determined_from_the_results(tmp_path):
    folder, plan = StudyFolder(tmp_path), Plan(schemes=("none", "rope", "alibi", "t5"))
    for run, state in zip(plan.runs(), ("done", "failed", "damaged", "pending"), strict=True):
        folder.run(run).mkdir(parents=True)
        if state in ("done", "failed"):
            write_checksummed(folder.result(run), {"format": 2, "status": state, "run": run.as_record})
    folder.result(plan.runs()[2]).write_text("{")
    missing = folder.missing(plan)
    assert [run.label for run in missing] == ["rope", "alibi", "t5"]
    (damage,) = folder.damaged(missing)
    assert re.match(
        r"alibi-s0: a file must start with the checksum .*result\.json does not.*trains this run again", damage
    )
    assert folder.status(plan.runs()[2]) == "pending"


def test_a_folder_of_a_version_without_mixers_and_tasks_is_resumed(tmp_path):
    folder, plan = StudyFolder(tmp_path), Plan(schemes=("rope",))
    folder.open(plan, TEXT, "x")
    about = folder.read()
    about["format"] = 1
    del about["compared"]
    for name in ("task", "mixers", "task_samples"):
        del about["plan"][name]
    write_checksummed(folder.study, about)
    folder.check(plan)
    folder.open(plan, TEXT, "x")
    assert folder.plan() == plan
    with pytest.raises(OtherStudyError, match=r"mixers: None -> \['softmax'\]"):
        folder.check(plan.model_copy(update={"mixers": ("softmax",)}))


def test_a_mixer_whose_usual_scheme_has_changed_since_is_rejected(tmp_path):
    folder, plan = StudyFolder(tmp_path), Plan(mixers=("softmax",))
    folder.open(plan, {"task": {"name": "copy"}}, "x")
    about = folder.read()
    about["compared"][0]["scheme"] = "alibi"
    write_checksummed(folder.study, about)
    with pytest.raises(OtherStudyError, match=r"softmax\.scheme: 'alibi' -> 'rope'"):
        folder.open(plan, {"task": {"name": "copy"}}, "x")
