"""What a text must have for a study is said before any run is trained."""

import pytest

from ordinate.study.plan import Plan
from ordinate.study.prepare_text import prepare_text

ONLY = "only one held-out document, {name}, has 65 tokens: no interval and no winner can be given; give more files"


def said(plan, folder):
    told = []
    prepare_text(plan, folder / "data", told.append, bytes_known=True)
    return [event.message for event in told]


@pytest.fixture
def text(tmp_path):
    """Six files, of which the hash selects file11.py and, as that is a single document, one more."""

    def make(sizes):
        (tmp_path / "text").mkdir()
        for number, size in zip(range(8, 14), sizes, strict=True):
            (tmp_path / "text" / f"file{number}.py").write_text("some text\n" * size)
        return Plan(text=str(tmp_path / "text"), length=16, eval_length_multiples=(1, 4))

    return make


def test_a_single_held_out_document_is_said(text, tmp_path):
    # at 4 times the length only file11.py is long enough, so that one is evaluated at all lengths
    told = said(text([5, 5, 5, 60, 5, 5]), tmp_path)
    assert any(one.startswith(ONLY.format(name="file11.py")) for one in told)


def test_nothing_is_said_of_two(text, tmp_path):
    assert not any("only one" in one for one in said(text([60] * 6), tmp_path))


def test_a_tuning_split_shorter_than_a_sequence_is_refused(text, tmp_path):
    plan = text([4] * 6).model_copy(update={"tune_lr": (0.001, 0.002), "eval_length_multiples": (1,)})
    message = "the tenth of the training text that tunes learning rates must have at least 17 tokens; .* has 16;"
    with pytest.raises(ValueError, match=message):
        prepare_text(plan, tmp_path / "data", lambda event: None, bytes_known=True)
