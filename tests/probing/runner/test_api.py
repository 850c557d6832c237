import pytest

from ordinate.probing.runner.api import probe
from ordinate.testing.analytic_model import AnalyticModel, random_sequences


@pytest.fixture(scope="module")
def answer():
    return probe(AnalyticModel("rope"), "order_sensitivity", data=random_sequences(6, 12), windows=(2,))


def test_a_question_is_asked_in_a_line(answer):
    assert answer["change, tokens, positions and mask permuted"].value < 1e-13
    assert str(answer).startswith("Does order matter to it")
    with pytest.raises(KeyError, match="order_sensitivity: nothing"):
        answer["nothing"]


def test_an_answer_shows_itself_in_a_notebook(answer):
    shown = answer._repr_html_()
    assert "<svg" in shown
    assert "<script" not in shown
    assert "http" not in shown.replace("http://www.w3.org", "")
    assert answer.finding.answer.split(".")[0] in shown


def test_unsupported_probes_are_skipped_or_raise_an_error(answer):
    found = probe(AnalyticModel("rope"), "position_content_subspaces", data=random_sequences(4, 12))
    assert found.finding.status == "skipped"
    assert "needs 15 texts or more; got 4; pass more" in str(found)
    poor = probe(AnalyticModel("rope"), "position_content_subspaces", data=random_sequences(20, 64), budget=1e6)
    assert "or a larger budget. Of 20 texts of 64" in str(poor)
    with pytest.raises(ValueError, match="did you mean 'windows'"):
        probe(AnalyticModel(), "order_sensitivity", data=random_sequences(), window=3)


def test_findings_from_random_tokens_have_a_caveat():
    found = probe(
        AnalyticModel("rope"), "order_sensitivity", text=__file__, samples=4, length=12, windows=(2,)
    ).finding
    assert (found.status, "random tokens" in found.caveats[0]) == ("measured", True)
