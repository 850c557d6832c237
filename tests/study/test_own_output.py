"""A study whose text is a folder that holds its own output."""

import pytest

from ordinate.data.dataset_folder import beside
from ordinate.study.study_folder import OtherStudyError


@pytest.fixture
def text(tmp_path):
    for number in range(12):
        (tmp_path / f"{number}.txt").write_text(f"line {number} of a short text\n" * 40)
    return tmp_path


def plan_of(designed, text):
    sizes = {"length": (16,), "width": (16,), "eval_samples": (4,), "shuffle_samples": (2,), "generated_texts": (0,)}
    return designed(
        text=(str(text),), schemes=("none",), eval_length_multiples=(1,), **sizes | {"task_samples": (512,)}
    )


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.extended
def test_a_study_does_not_read_its_own_output_nor_that_of_others(text, designed, carried):
    plan = plan_of(designed, text)
    folder, done = carried(plan, text / "results" / "first")
    assert done == ["none-s0"]
    assert folder.read()["text"]["files"] == 12
    data = contents(folder.data)
    for _ in range(3):
        assert carried(plan, folder.path)[1] == []
    assert contents(folder.data) == data
    other, _ = carried(plan, text / "results" / "second")
    assert other.read()["text"]["sha256"] == folder.read()["text"]["sha256"]
    assert other.read()["text"]["left_out"] == "2 results of Ordinate (results/first, results/second)"


@pytest.mark.extended
def test_a_study_whose_text_has_changed_is_refused_and_keeps_its_data(text, designed, carried):
    plan = plan_of(designed, text)
    folder, _ = carried(plan, text / "results")
    data = contents(folder.data)
    (text / "0.txt").write_text("another line\n" * 40)
    for _ in range(2):
        with pytest.raises(OtherStudyError, match=r"text\.sha256"):
            carried(plan, folder.path)
        assert contents(folder.data) == data
        assert not any(path.exists() for path in beside(folder.data))
    (text / "0.txt").write_text("line 0 of a short text\n" * 40)
    assert carried(plan, folder.path)[1] == []


def test_files_that_are_left_out_do_not_change_a_study(text, designed, carried):
    plan = plan_of(designed, text)
    folder, _ = carried(plan, text / "results")
    (text / "picture.png").write_bytes(b"\0\1")
    assert carried(plan, folder.path)[1] == []
    (text / "picture.png").unlink()
    assert carried(plan, folder.path)[1] == []
