import pytest

from ordinate.lab.answer import ask
from ordinate.testing.plain import Plain, texts


@pytest.fixture(scope="module")
def answer():
    return ask(Plain("rope"), "order", material=texts(6, 12), windows=(2,))


def test_a_question_is_asked_in_a_line(answer):
    assert answer["change, tokens, positions and mask permuted"].value < 1e-13
    assert str(answer).startswith("Does order matter to it")
    with pytest.raises(KeyError, match="order: nothing"):
        answer["nothing"]


def test_an_answer_shows_itself_in_a_notebook(answer):
    shown = answer._repr_html_()
    assert "<svg" in shown
    assert "<script" not in shown
    assert "http" not in shown.replace("http://www.w3.org", "")
    assert answer.finding.answer.split(".")[0] in shown


def test_what_cannot_be_asked_is_said(answer):
    found = ask(Plain("rope"), "subspaces", material=texts(4, 12))
    assert found.finding.status == "skipped"
    assert "needs 15 of them; there are 4; give more" in str(found)
    poor = ask(Plain("rope"), "subspaces", material=texts(20, 64), budget=1e6)
    assert "or a larger budget. Of 20 texts of 64" in str(poor)
    with pytest.raises(ValueError, match="did you mean 'windows'"):
        ask(Plain(), "order", material=texts(), window=3)


def test_an_answer_about_random_tokens_says_so():
    found = ask(Plain("rope"), "order", text=__file__, sequences=4, length=12, windows=(2,)).finding
    assert (found.status, "random tokens" in found.caveats[0]) == ("measured", True)
