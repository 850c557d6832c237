"""Pages with generated parts: fill them in, compare them with the files, write what differs.

A generated part of a page stands between the lines `<!-- name -->` and `<!-- end of name -->`.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
Pages = dict[Path, dict[str, str] | str]
"""For each page its generated parts by name, or its whole text."""


def fill(page: str, parts: dict[str, str], where: object = "the page") -> str:
    """Replace the generated parts of a page, by their names."""
    for name, text in parts.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not (begin and end):
            raise SystemExit(f"{where} needs the lines <!-- {name} --> and <!-- end of {name} -->")
        page = f"{before}{begin}\n{text}\n\n{end}{after}"
    return page


def text(path: Path, parts: dict[str, str] | str) -> str:
    """Return the full text of a page with its generated parts."""
    return parts if isinstance(parts, str) else fill(path.read_text(encoding="utf-8"), parts, path)


def stale(pages: Pages) -> list[Path]:
    """Return the pages whose file differs."""
    return [
        path
        for path, parts in pages.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text(path, parts)
    ]


def write(pages: Pages) -> None:
    """Write the pages whose file differs, and print their paths."""
    for path in stale(pages):
        path.write_text(text(path, pages[path]), encoding="utf-8")
        print(path.relative_to(ROOT))
