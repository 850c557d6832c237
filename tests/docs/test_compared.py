import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
script = runpy.run_path(str(ROOT / ".ci" / "compared.py"))


def test_every_command_is_one_that_the_command_line_takes():
    from ordinate.study.data_source import make_task

    for options in script["STUDIES"].values():
        words = options.split()
        if "--task" in words:
            make_task(words[words.index("--task") + 1])
