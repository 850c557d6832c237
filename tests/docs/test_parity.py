import ast
import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "parity"
RESULTS = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
script = runpy.run_path(str(ROOT / ".ci" / "parity.py"))


def recording(fixture):
    """Every parity test that asks for this fixture."""
    for file in sorted({*FOLDER.glob("test_*.py")} - {FOLDER / "test_record.py"}):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and fixture in [argument.arg for argument in node.args.args]:
                yield f"{file.name}::{node.name}"


@pytest.mark.parametrize(("fixture", "table"), [("record", "equal"), ("record_error", "errors")])
def test_what_was_measured_comes_from_the_tests_that_there_are(fixture, table):
    assert {row["test"] for row in RESULTS[table]} == set(recording(fixture)), "run ./dev parity --save"


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (1e-6, "1e-6"), (1.1e-6, "2e-6"), (9.5e-8, "1e-7"), (0.3, "3e-1"), (1.0, "1e0"), (2.5e-16, "3e-16")],
)
def test_a_difference_is_rounded_up(number, shown):
    assert script["within"](number) == shown
