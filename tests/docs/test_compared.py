import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
script = runpy.run_path(str(ROOT / ".ci" / "compared.py"))


def test_the_page_shows_what_was_measured():
    page = (ROOT / "docs" / "mixers" / "compared.md").read_text(encoding="utf-8")
    assert script["filled"](page, script["parts"]()) == page, "run python .ci/compared.py"


def test_every_command_is_one_that_the_command_line_takes():
    from ordinate.study.source import make_task

    for options in script["STUDIES"].values():
        words = options.split()
        if "--task" in words:
            make_task(words[words.index("--task") + 1])
