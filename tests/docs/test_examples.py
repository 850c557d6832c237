from pathlib import Path

import pytest
from sybil.document import Document
from sybil.parsers.markdown import CodeBlockParser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page):
    """The Python examples of a page, with the line where each begins."""
    document = Document(page.read_text(encoding="utf-8"), str(page))
    found = sorted(CodeBlockParser("python", lambda example: None)(document), key=lambda region: region.start)
    return [(document.text.count("\n", 0, region.start) + 1, str(region.parsed)) for region in found]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_example_runs(page):
    names = {}
    for line, code in blocks(page):
        # as far down as in the page, so that an error names the right line
        exec(compile("\n" * line + code, str(page), "exec"), names)  # noqa: S102


def test_every_link_inside_leads_somewhere():
    import re

    missing = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                missing.append(f"{page.relative_to(ROOT)}: {target}")
    assert missing == []


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 60
