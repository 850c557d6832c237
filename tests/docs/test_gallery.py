"""The gallery shows every scheme, from the schemes themselves."""

from xml.etree import ElementTree

import gallery
import pytest

from ordinate.core import catalog

SCHEMES = catalog.names("ordinate.schemes")


def test_the_gallery_is_that_of_the_schemes_that_there_are():
    found = gallery.pages()
    stale = [path.name for path, text in found.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"run python .ci/gallery.py: {stale}"
    assert {path.stem for path in gallery.FOLDER.iterdir()} == set(SCHEMES)


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", SCHEMES)
def test_an_entry_has_a_picture_a_formula_and_a_use(name):
    ElementTree.parse(gallery.FOLDER / f"{name}.svg")
    lines = "\n".join(gallery.entry(name))
    assert f"](gallery/{name}.svg)" in lines
    assert "**When to use it.**" in lines
    assert "```" in lines


def test_pictures_that_differ_by_rounding_only_are_alike():
    old = (gallery.FOLDER / "alibi.svg").read_text(encoding="utf-8")
    place = old.index("points='") + len("points='")
    number = gallery.NUMBER.match(old, place)[0]
    moved = lambda by: f"{old[:place]}{float(number) + by:.1f}{old[place + len(number) :]}"  # noqa: E731
    assert gallery.alike(old, moved(0.1))
    assert not gallery.alike(old, moved(3.0))
    assert not gallery.alike(old, old.replace("head 0", "head 9"))
    assert not gallery.alike("", old)


def test_models_that_compute_the_same_are_named():
    assert gallery.models("alibi") == ["bloom", "falcon", "mpt"]
    assert gallery.models("xpos") == []


def test_a_page_without_its_paragraph_is_named():
    with pytest.raises(SystemExit, match="needs a paragraph that begins with"):
        gallery.paragraph("# x", "**When to use it.** ")
