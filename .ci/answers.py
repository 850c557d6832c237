"""Write docs/questions/index.md, short answers to common questions, from docs/questions/entries.

Part of `.ci/pages.py`. An entry is a TOML file: `place` and `group` in the list; `question`; `word` (Yes, No, It
depends) and `answer`, in which {number} stands for a measured number; `file` and `name`, where that number is (with
`unit`, if it is in a table; `also` names a second one, {also}); `page`, the page that says more; `change`, what would
change the answer; `cell`, an example that shows it.
"""

import tomllib
from itertools import groupby
from pathlib import Path
from typing import Any

from ordinate.core.checks import need, need_known
from ordinate.explorer._panel import Citation
from ordinate.explorer.measured import read_number

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "questions"
WORDS = ("Yes", "No", "It depends")
KEYS = {"place", "group", "question", "word", "answer", "file", "name", "page", "change", "cell"}
MAY = {"unit", "also"}
START = """# Questions and answers

What is asked about position in attention, in a sentence or two each: with a number measured in this project and its
95 % interval, an example that runs, and what would change the answer. [The explorer](../explorer.md) lets you try
most of them; the pages named beside each answer say how its number is measured. This page is written from
`docs/questions/entries`, one file a question.
"""


def pages() -> dict[Path, str]:
    """Return the page."""
    return {FOLDER / "index.md": page(entries())}


def entries(folder: Path = FOLDER / "entries") -> list[dict[str, Any]]:
    """Read all entries, in their order.

    Raises:
        ValueError: an entry that lacks a field, has an unknown one, or another first word.
    """
    found = []
    for path in sorted(folder.glob("*.toml")):
        entry = tomllib.loads(path.read_text(encoding="utf-8"))
        missing = sorted(KEYS - entry.keys())
        need(not missing, f"{path.name} must have every field of an entry", f"it lacks {missing}", "add them")
        for key in entry:
            need_known(f"field of {path.name}", key, KEYS | MAY)
        need_known(f"word of {path.name}", entry["word"], WORDS)
        found.append(entry)
    return sorted(found, key=lambda entry: entry["place"])


def page(found: list[dict[str, Any]]) -> str:
    """Return the text of the page: a list of all questions by their group, then the entries."""
    rows = ["| | question | answer |", "|---|---|---|"]
    for group, members in groupby(found, key=lambda entry: entry["group"]):
        for n, entry in enumerate(members):
            title = f"[{entry['question']}](#{anchor(entry['question'])})"
            rows.append(f"| {'' if n else group} | {title} | {entry['word']} |")
    return "\n".join([START, *rows, "", *(text(entry) for entry in found)])


def text(entry: dict[str, Any]) -> str:
    """Return one entry."""
    cited = [Citation(entry["file"], entry[key], entry.get("unit", "")) for key in ("name", "also") if key in entry]
    numbers = dict(zip(("number", "also"), (str(read_number(ROOT, one)) for one in cited), strict=False))
    answer = entry["answer"].format(**numbers)
    return (
        f"## {entry['question']}\n\n**{entry['word']}.** {answer}\n\n*What would change it:* {entry['change']}\n"
        f"*Measured:* `{entry['file']}`, {entry['name']}. "
        f"*More:* [{entry['page'].removesuffix('.md')}]({entry['page']}).\n\n"
        f"```python\n{entry['cell'].strip()}\n```\n"
    )


def anchor(heading: str) -> str:
    """Return what a heading is called in links."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return "-".join(kept.split())
