"""The notebooks are those of their pages, and every cell runs."""

import json

import pytest

import notebooks

ROOT = notebooks.ROOT
FILES = sorted(notebooks.FOLDER.glob("*.ipynb"))


def test_the_notebooks_are_those_of_the_pages():
    found = notebooks.pages()
    assert sorted(found) == FILES
    assert all(path.read_text(encoding="utf-8") == text for path, text in found.items()), "run .ci/notebooks.py"


def test_examples_are_cells_of_code_and_the_rest_is_text():
    made = notebooks.notebook("# A\n\n[b](b.md), [c](../c.md#d)\n\n```python\nx = 1\n\ny\n```\n\nend\n")
    assert [cell["cell_type"] for cell in made["cells"]] == ["markdown", "code", "markdown"]
    assert made["cells"][1]["source"] == ["x = 1\n", "\n", "y"]
    assert made["cells"][1]["outputs"] == []
    assert "[b](b.ipynb), [c](../docs/c.md#d)" in "".join(made["cells"][0]["source"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_somewhere(path):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            for link in notebooks.LINK.findall("".join(cell["source"])):
                assert (path.parent / link.partition("#")[0]).exists(), link


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs(path, tmp_path):
    pytest.importorskip("nbclient")
    made = notebooks.executed(path, tmp_path)
    assert all(cell["execution_count"] for cell in made["cells"] if cell["cell_type"] == "code")
    shown = [out for cell in made["cells"] for out in cell.get("outputs", ())]
    assert any("text/html" in out.get("data", {}) or out["output_type"] == "stream" for out in shown)
