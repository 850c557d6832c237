import re
import runpy
from pathlib import Path

import pytest
from generated_parts import fill

from ordinate.core import catalog

ROOT = Path(__file__).parents[2]
script = runpy.run_path(str(ROOT / ".ci" / "mixers.py"))
PAGE = (ROOT / "docs" / "mixers.md").read_text(encoding="utf-8")


def test_a_page_without_its_costs_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(script["costs"].__globals__, "DOCS", tmp_path)
    (tmp_path / "mixers").mkdir()
    (tmp_path / "mixers" / "new.md").write_text("| option | default |\n|---|---|\n| `width` | 3 |\n")
    with pytest.raises(SystemExit, match=r"docs/mixers/new.md needs a table of one row with the columns time"):
        script["costs"]("new")


def test_a_page_without_a_place_for_a_table_is_named():
    with pytest.raises(SystemExit, match="needs the lines <!-- ideas --> and <!-- end of ideas -->"):
        fill("nothing", {"ideas": "a table"})


def test_means_are_those_of_their_rows():
    rows = re.findall(r"^\| [^|]+ \| ((?:[\d.]+ \| ){5})[\w.]+ \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 10
    for cells, mean in rows:
        numbers = [float(cell) for cell in cells.split(" | ") if cell]
        assert f"{sum(numbers) / 5:.1f}" == mean


def test_published_names_are_those_of_mixers_here():
    linked = set(re.findall(r"\(mixers/(\w+)\.md", PAGE))
    assert set(catalog.names("ordinate.mixers")) <= linked
