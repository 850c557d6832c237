"""Write docs/questions/index.md, short answers to common questions, and the explorer's list of them.

Part of `.ci/pages.py`. An entry is a TOML file in docs/questions/entries: `place` and `group` in the list;
`question`; `word` (Yes, No, It depends) and `answer`, in which {number} stands for a measured number; `file` and
`name`, where that number is (with `unit`, if it is in a table; `also` names a second one, {also}); `page`, the page
that says more; `change`, what would change the answer; `cell`, an example that shows it.

`file` is a finding, a replication (`name` is that of the claim), a table of a study (`row:column`, where a row is a
scheme, or the values of some columns: `mixer=softmax:accuracy_1x`), or a benchmark (`benchmarks/results/NAME`: the
newest result).

`docs/questions/walk.toml` lists, for questions as people ask them, a panel of the explorer and entries; each entry
stands in it, and below that panel.
"""

import csv
import json
import tomllib
from itertools import groupby
from pathlib import Path
from typing import Any

from speeds import newest

from ordinate.core.checks import need, need_known
from ordinate.explorer._panel import Citation, Number
from ordinate.explorer.measured import panels, read_number
from ordinate.explorer.related import FILE

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "questions"
PACKAGE = ROOT / "src" / "ordinate" / "explorer"
WORDS = ("Yes", "No", "It depends")
KEYS = {"place", "group", "question", "word", "answer", "file", "name", "page", "change", "cell"}
MAY = {"unit", "also"}
START = """# Questions and answers

{count} questions about position in attention. Each answer begins with yes, no or it depends, has a number measured in
this project, with its 95 % interval where it has one, an example that runs, and what would change it. [The
explorer](../explorer.md) lets you try most of them; [Q, K and V](q_k_v.md) has every number of one small attention,
and [a table](relations.md) tells which scheme learns which relation, such as the previous token or the n-th symbol.
This page is written from `docs/questions/entries`, one file a question.
"""
WALK = """## Where to begin

Questions as people ask them, the panel of [the explorer](../explorer.md) in which you can try, and the answers.

"""


def pages() -> dict[Path, str]:
    """Return docs/questions/index.md and the explorer's related.json as the entries make them, by their paths."""
    found = entries()
    told = json.dumps(related(found), indent=1, ensure_ascii=False) + "\n"
    return {FOLDER / "index.md": page(found), PACKAGE / FILE: told}


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
        found.append(entry | {"stem": path.stem})
    return sorted(found, key=lambda entry: entry["place"])


def page(found: list[dict[str, Any]]) -> str:
    """Return the text of the page: a list of all questions by their group, the entries, and where to begin."""
    lines, parts = [START.format(count=len(found))], list[str]()
    for group, members in groupby(found, key=lambda entry: entry["group"]):
        own = list(members)
        lines += [f"**[{group}](#{anchor(group)})**", ""]
        lines += [f"- **{entry['word']}.** [{entry['question']}](#{anchor(entry['question'])})" for entry in own]
        lines.append("")
        parts += [f"## {group}\n", *(text(entry) for entry in own)]
    return "\n".join([*lines, "[Where to begin](#where-to-begin)", "", *parts, WALK + walk(found)])


def text(entry: dict[str, Any]) -> str:
    """Return the Markdown of an entry: answer with its numbers, what would change it, source, example."""
    names = "; ".join(one.name for one in citations(entry))
    return (
        f"### {entry['question']}\n\n**{entry['word']}.** {answer(entry)}\n\n"
        f"*What would change it:* {entry['change']}\n\n"
        f"*Measured:* {names}, in `{source(entry['file']).relative_to(ROOT).as_posix()}`.\n"
        f"*More:* [{Path(entry['page']).stem}]({entry['page']}).\n\n"
        f"```python\n{entry['cell'].strip()}\n```\n"
    )


def citations(entry: dict[str, Any]) -> list[Citation]:
    """Return the one or two numbers that an entry cites."""
    return [Citation(entry["file"], entry[key], entry.get("unit", "")) for key in ("name", "also") if key in entry]


def answer(entry: dict[str, Any]) -> str:
    """Return the answer of an entry with its numbers."""
    shown = (formatted(read(one)) for one in citations(entry))
    return entry["answer"].format(**dict(zip(("number", "also"), shown, strict=False)))


def walked() -> list[dict[str, Any]]:
    """Read the questions as people ask them."""
    return tomllib.loads((FOLDER / "walk.toml").read_text(encoding="utf-8"))["row"]


def related(found: list[dict[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """Return short answers by the panel in which they can be tried, in the order of the walk, each once.

    Raises:
        ValueError: an entry that no row of the walk has.
    """
    known, panel_of = {entry["stem"]: entry for entry in found}, dict[str, str]()
    for row in walked():
        for stem in row["entries"]:
            panel_of.setdefault(stem, row["panel"])
    missing = sorted(known.keys() - panel_of.keys())
    need(not missing, "each entry must stand in a row of walk.toml", f"{missing} do not", "add them to a row")
    shown: dict[str, list[dict[str, str]]] = {name: [] for name, _ in panels()}
    for stem, name in panel_of.items():
        entry = known[stem]
        facts = {key: entry[key] for key in ("question", "word", "change")}
        path = source(entry["file"]).relative_to(ROOT).as_posix()
        shown[name].append(facts | {"answer": answer(entry), "source": path, "anchor": anchor(entry["question"])})
    return shown


def walk(found: list[dict[str, Any]]) -> str:
    """Return the table of questions as people ask them.

    Raises:
        ValueError: a row with a panel or an entry that does not exist.
    """
    titles, known = {name: panel.title for name, panel in panels()}, {entry["stem"]: entry for entry in found}
    rows = ["| question | panel | answers |", "|---|---|---|"]
    for row in walked():
        for stem in row["entries"]:
            need_known("entry of walk.toml", stem, known)
        need_known("panel of walk.toml", row["panel"], titles)
        links = "<br>".join(
            f"[{known[stem]['question']}](#{anchor(known[stem]['question'])}) {known[stem]['word']}."
            for stem in row["entries"]
        )
        rows.append(f"| {row['question']} | {titles[row['panel']]} | {links} |")
    return "\n".join(rows) + "\n"


def source(file: str) -> Path:
    """Return the file of an entry; of a benchmark its newest result."""
    return newest(Path(file).name)[0] if file.startswith("benchmarks/") else ROOT / file


def read(cited: Citation) -> Number:
    """Read a cited number.

    Raises:
        ValueError: there is none of this name.
    """
    path = source(cited.file)
    if path.suffix == ".csv" and "=" in cited.name:
        return in_table(path, cited)
    if path.suffix == ".csv" or "findings" in path.parts:
        return read_number(ROOT, cited)
    result = json.loads(path.read_text(encoding="utf-8"))
    if "results" in result:
        found = result["results"]
    else:
        found = {claim["claim"]["name"]: claim["ours"] for claim in result["result"]["claims"]}
    need_known(f"number of {cited.file}", cited.name, found)
    return Number(*(found[cited.name][key] for key in ("value", "low", "high", "unit")))


def in_table(path: Path, cited: Citation) -> Number:
    """Read a number in the row whose columns have the cited values."""
    row, column = cited.name.rsplit(":", 1)
    wanted = [tuple(part.split("=", 1)) for part in row.split(",")]
    with path.open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.DictReader(file) if all(line[key] == value for key, value in wanted)]
    need(len(lines) == 1, f"{row} must be one row of {cited.file}", f"it is {len(lines)}", "name more columns")
    return Number(*(float(lines[0][column + end]) for end in ("", "_low", "_high")), cited.unit)


def formatted(number: Number) -> str:
    """Format a number with its interval; whole numbers without one in full."""
    if number.low is None or number.low == number.high:
        return f"{number.value:,.0f}" if number.value == round(number.value) else str(Number(number.value))
    return str(number)


def anchor(heading: str) -> str:
    """Return what a heading is called in links."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return "-".join(kept.split())
