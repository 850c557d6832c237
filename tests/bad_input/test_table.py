"""Each row of the table of invalid inputs gives the documented result."""

import re
import runpy
import traceback
from pathlib import Path

import pytest

import ordinate
from ordinate.testing import scheme_checks

SOURCE = Path(ordinate.__file__).parent
page = runpy.run_path(str(Path(__file__).with_name("write_page.py")))
TABLE = page["table"]()
ROWS = {row["number"]: row for row in TABLE["row"]}


def expect_clear(error):
    """Assert that this is a ValueError or TypeError of our own, with the three parts of a message."""
    assert type(error) in (ValueError, TypeError)
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert SOURCE in Path(last.filename).parents, f"{last.filename} raised it: {error}"
    assert re.search(r".{8,}?; .+; .{4,}", str(error), re.DOTALL), f"it does not say all three: {error}"


def test_the_table_contains_every_row_once():
    assert list(ROWS) == list(range(1, 50))
    assert {letter for row in ROWS.values() for letter in row["peers"]} == set(TABLE["packages"])


@pytest.mark.parametrize("number", ROWS)
def test_an_invalid_input_is_correct_or_a_clear_error(number, untyped):
    row = ROWS[number]
    error = page["tried"](row, TABLE["prelude"])
    if row["here"] == "error":
        assert error is not None, "it was accepted"
        expect_clear(error)
    else:
        assert row["here"] in ("right", "n/a")
        assert error is None, f"{error}"
        assert row["says"].endswith(".")


def test_rows_for_every_scheme_name_existing_tests():
    text = Path(__file__).with_name("test_every_scheme.py").read_text(encoding="utf-8")
    known = {check.name for check in scheme_checks()} | set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))
    named = {name for row in ROWS.values() for name in row.get("every", [])}
    assert named <= known
    assert {name for name in known if name.startswith("test_")} <= named


def test_the_page_is_up_to_date(untyped):
    written = page["PAGE"].read_text(encoding="utf-8")
    assert written == page["page"](), "write it anew: python tests/bad_input/write_page.py"
