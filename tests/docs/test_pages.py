import pytest
from generated_parts import ROOT, fill, stale, write


def test_parts_are_replaced_between_their_lines():
    page = "before\n<!-- a -->\nold\n<!-- end of a -->\nafter\n"
    made = fill(page, {"a": "new"})
    assert made == "before\n<!-- a -->\n\nnew\n\n<!-- end of a -->\nafter\n"
    assert fill(made, {"a": "new"}) == made


def test_a_page_without_a_place_for_a_part_is_refused():
    with pytest.raises(SystemExit, match=r"page\.md needs the lines <!-- a --> and <!-- end of a -->"):
        fill("nothing", {"a": "new"}, "page.md")


def test_only_stale_pages_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(write.__globals__, "ROOT", tmp_path)
    same, other = tmp_path / "same.md", tmp_path / "other.md"
    same.write_text("text")
    pages = {same: "text", other: "new"}
    assert stale(pages) == [other]
    write(pages)
    assert capsys.readouterr().out == "other.md\n"
    assert not stale(pages)
    assert ROOT.is_dir()
