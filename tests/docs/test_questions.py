import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUESTIONS = runpy.run_path(str(ROOT / ".ci" / "questions.py"))


@pytest.mark.parametrize("question", QUESTIONS["pages"]())
def test_a_page_says_what_was_measured(question):
    path = QUESTIONS["pages"]()[question]
    page = path.read_text(encoding="utf-8")
    again = QUESTIONS["filled"](page, QUESTIONS["measured"](question, QUESTIONS["models"]()), path)
    assert page == again, "write it again: python .ci/questions.py"


def test_the_page_of_the_command_says_what_minilm_answers():
    path = ROOT / "docs" / "probe.md"
    page = path.read_text(encoding="utf-8")
    again = QUESTIONS["filled"](page, QUESTIONS["answered"](QUESTIONS["models"]()["minilm"]), path)
    assert page == again, "write it again: python .ci/questions.py"


def test_each_kept_finding_is_of_the_command_that_is_named():
    for name, model in QUESTIONS["models"]().items():
        assert model.about["about"]["command"] == QUESTIONS["COMMANDS"][name]
        assert model.failures == {}
