"""Write docs/bad-input.md from table.toml: what happens to each bad input here, by trying it."""

import re
import textwrap
import tomllib
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "bad-input.md"
WIDTH = 140
LETTERS = re.compile(r"\b[COSNZk]\b")
MARGIN = {"initial_indent": "    ", "subsequent_indent": "    "}
HEAD = """# Bad input

Forty-nine inputs that are wrong, or look it, and what becomes of them: in public packages, and here. The commonest
failure of the field is not a crash but a plausible wrong number. So here each of them is either right, or a clear
error: a ValueError or TypeError of our own, raised before anything is computed, that says what must hold, what came,
and what to do.

`tests/bad_input/table.toml` holds the table, tests run every row, and this page is written from it by
`python tests/bad_input/write_page.py`: the messages are those that the code gave. Where a row applies to any scheme,
tests try it on every scheme of the catalog.

## Packages

{packages}

Versions of November 2026, run on a CPU. **C** a clear error, **O** an obscure one, **S** silently wrong (the number
is the largest error), **N** NaN or infinity, **Z** a NaN hidden as a number, **k** right.

{counts}

## Names in the examples

```python
{prelude}
```

## The inputs
"""


def table():
    """Every row, and what they have in common."""
    return tomllib.loads((FOLDER / "table.toml").read_text(encoding="utf-8"))


def tried(row, prelude):
    """The error that the code of a row raises; None where it raises none."""
    names = {"__name__": "bad_input"}
    exec(compile(prelude, "prelude", "exec"), names)
    try:
        exec(compile(row.get("code", ""), f"row {row['number']}", "exec"), names)
    except (ValueError, TypeError) as error:
        return error
    return None


def section(row, prelude):
    """What the page says of one row."""
    peers = ", ".join(f"{package} {came}" for package, came in row["peers"].items())
    says = textwrap.fill(row.get("says", ""), WIDTH)
    parts = [f"### {row['number']}. {row['input'][0].upper()}{row['input'][1:]}", f"Elsewhere: {peers}."]
    if says:
        parts.append(says)
    if row["here"] == "error":
        error = tried(row, prelude)
        lines = [row["code"].strip(), *textwrap.wrap(f"{type(error).__name__}: {error}", WIDTH - 4, **MARGIN)]
        parts.append("\n".join(["```text", *lines, "```"]))
    elif row["here"] == "right":
        parts.append("\n".join(["```text", row["code"].strip(), "```"]))
    return "\n\n".join(parts)


def counts(rows):
    """How often each outcome came."""
    here = Counter(row["here"] for row in rows)
    there = Counter(letter for row in rows for came in row["peers"].values() for letter in LETTERS.findall(came))
    wrong = there["S"] + there["N"] + there["Z"]
    said = (
        f"Of the {there.total()} outcomes elsewhere, {wrong} are a wrong number or none, "
        f"{there['O']} an obscure error, "
        f"{there['C']} a clear one, and {there['k']} right. Here {here['error']} of the rows are clear errors and "
        f"{here['right']} right; {here['unsaid']} cannot be said."
    )
    return textwrap.fill(said, WIDTH)


def page():
    """The whole page."""
    found = table()
    packages = "\n".join(f"- **{letter}**: {name}" for letter, name in found["packages"].items())
    head = HEAD.format(packages=packages, counts=counts(found["row"]), prelude=found["prelude"].strip())
    return head + "\n" + "\n\n".join(section(row, found["prelude"]) for row in found["row"]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
