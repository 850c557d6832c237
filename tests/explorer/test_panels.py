import json
from importlib import resources
from pathlib import Path

import pytest

from ordinate.explorer._panel import Citation, Number
from ordinate.explorer.measured import FILE, collect, load, number, panels

ROOT = Path(__file__).parents[2]
PANELS = panels()


def test_panels_are_nine_in_their_order():
    assert [panel.place for _, panel in PANELS] == list(range(1, 10))


def test_each_panel_has_a_module_of_its_name():
    folder = resources.files("ordinate.explorer").joinpath("js/panels")
    assert sorted(entry.name for entry in folder.iterdir()) == sorted(f"{name}.js" for name, _ in PANELS)


@pytest.mark.parametrize(("name", "panel"), PANELS)
def test_an_answer_has_its_measured_number_and_its_page(name, panel):
    measured = number(load(), panel.cited)
    answer = panel.answer(measured)
    assert answer.word in ("Yes", "No", "It depends")
    assert str(measured) in answer.text
    assert panel.question.endswith("?")
    assert (ROOT / "docs" / panel.page).is_file()


def test_the_numbers_are_those_of_the_committed_results():
    assert json.loads(json.dumps(collect(ROOT))) == load(), f"run `python .ci/pages.py`: {FILE} is stale"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((0.9995, 0.99937, 0.99964), "0.9995 [0.9994, 0.9996]"),
        ((3.2, 3.1, 3.4), "3.2 [3.1, 3.4]"),
        ((0.011, -0.0008, 0.023), "0.01 [0.00, 0.02]"),
        ((1.26, None, None), "1.3"),
        ((2.4e-7, 2.2e-7, 2.6e-7), "2.4e-07 [2.2e-07, 2.6e-07]"),
        ((0, -2.2e-8, 1.5e-8), "0 [-2.2e-08, 1.5e-08]"),
    ],
)
def test_a_number_has_the_decimals_that_its_interval_supports(given, text):
    assert str(Number(*given)) == text


def test_a_citation_of_nothing_is_refused(monkeypatch):
    panel = PANELS[0][1]
    monkeypatch.setattr(type(panel), "cited", Citation(panel.cited.file, "no such number"))
    with pytest.raises(ValueError, match=r"a citation must name a number of its file; .* has no 'no such number'"):
        collect(ROOT)
