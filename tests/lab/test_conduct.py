import json

import pytest

from ordinate.finding import Finding
from ordinate.lab.conduct import Question, conduct, questions
from ordinate.lab.folder import Folder, OtherModelError
from ordinate.lock import OccupiedError
from ordinate.subject import Unfit
from ordinate.testing.plain import Plain, texts

ORDER = Question("order", {"windows": "2;8"})


class Heard:
    def __init__(self):
        self.said = []

    def asked(self, question):
        self.said.append(("asked", question.name))

    def told(self, question, done):
        assert 0 <= done <= 1

    def ended(self, question, how, why):
        self.said.append((how, why))


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path / "out")
    folder.open({"model": "plain", "seed": 0}, {"facts": {}})
    return folder


def run(folder, asked=(ORDER,), subject=None, material=None):
    heard = Heard()
    failed = conduct(asked, subject or Plain(), material or texts(4, 12), folder, 0, heard)
    return failed, [how for how, _ in heard.said], heard


def test_what_is_answered_is_not_asked_again(folder):
    assert run(folder)[1] == ["asked", "measured"]
    assert run(folder)[1] == ["kept"]
    other = Question("order", {"windows": "2"})
    assert run(folder, (other,))[1] == ["asked", "measured"]


def test_a_damaged_answer_is_asked_again(folder):
    run(folder)
    folder.finding("order").write_text("{")
    assert run(folder)[1] == ["asked", "measured"]


def test_a_question_that_cannot_be_asked_is_skipped_with_its_reason(folder):
    failed, how, _ = run(folder, material=Unfit("it has no tokenizer"))
    assert (failed, how) == ([], ["asked", "skipped"])
    found = folder.found("order", ORDER.options)
    assert (found.status, found.answer) == ("skipped", "it has no tokenizer")


class Broken(Plain):
    def read(self, inputs, watch=None):
        raise RuntimeError("it broke")


def test_one_that_fails_does_not_stop_the_others_and_is_tried_again(folder):
    second = Question("order", {"windows": "4"})
    failed, how, heard = run(folder, (ORDER, second), subject=Broken())
    assert failed == ["order", "order"]
    assert how == ["asked", "failed"] * 2
    assert heard.said[1][1] == "RuntimeError: it broke"
    assert "it broke" in json.loads(folder.failure("order").read_text())["message"]
    assert run(folder)[1] == ["asked", "measured"]
    assert not folder.failure("order").exists()


def test_other_inputs_are_refused_and_named(folder):
    with pytest.raises(OtherModelError, match=r"seed: 0 -> 1\n.*another --out"):
        folder.open({"model": "plain", "seed": 1}, {})
    folder.open({"model": "plain", "seed": 0}, {})
    folder.subject.write_text("{")
    with pytest.raises(OtherModelError, match="cannot be read"):
        folder.open({"model": "plain", "seed": 0}, {})


def test_two_do_not_write_at_once_and_other_folders_are_left_alone(folder, tmp_path):
    with folder.lock(), pytest.raises(OccupiedError, match="is at work in"), folder.lock():
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(OtherModelError, match="holds other files"), Folder(tmp_path / "other").lock():
        pass


def test_questions_are_checked_before_anything_is_asked():
    assert [question.name for question in questions(["order:windows=2;4"])] == ["order"]
    assert "order" in [question.name for question in questions()]
    with pytest.raises(ValueError, match="did you mean 'order'"):
        questions(["ordr"])
    with pytest.raises(ValueError, match="did you mean 'windows'"):
        questions(["order:window=2"])
    with pytest.raises(ValueError, match="asked once"):
        questions(["order", "order"])


def test_a_finding_comes_back_as_it_was(folder):
    finding = Finding(question="order", title="t", answer="a", caveats=("c",))
    folder.keep("order", {}, finding)
    assert folder.found("order", {}) == finding
