import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUESTIONS = runpy.run_path(str(ROOT / ".ci" / "questions.py"))


def test_each_stored_finding_is_of_the_command_that_is_named():
    for name, model in QUESTIONS["models"]().items():
        assert model.about["about"]["command"] == QUESTIONS["COMMANDS"][name]
        assert model.failures == {}
