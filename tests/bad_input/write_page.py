"""Write docs/bad-input.md from table.toml, running the example of each row to get its error message."""

import json
import re
import textwrap
import tomllib
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "bad-input.md"
KINDS = ("clear", "right", "obscure", "silently wrong", "NaN", "hanging")
WIDTH = 140
LETTERS = re.compile(r"\b[COSNZk]\b")
MARGIN = {"initial_indent": "    ", "subsequent_indent": "    "}
HEAD = """# Invalid inputs

Forty-nine invalid or unusual inputs, and what public packages and Ordinate do with them. The most common failure in
the field is not a crash but a plausible wrong result. In Ordinate each of them gives either a correct result or a
clear error: a ValueError or TypeError of our own, raised before any computation, that states what must hold, what was
given, and how to fix it.

The rows are in `tests/bad_input/table.toml`. Tests run every row, and `python tests/bad_input/write_page.py` writes
this page from it, with the actual error messages. Rows that apply to any scheme are tested for every scheme of the
catalog.

## Packages

{packages}

Versions of November 2026, run on a CPU. **C** a clear error, **O** an obscure error, **S** silently wrong (the number
is the largest error), **N** NaN or infinity, **Z** a NaN turned into a finite number, **k** correct.

{counts}

## Random wrong inputs, by gate

A gate is a place where Ordinate takes in what others wrote. At each, valid input is changed at random: values of
another type, negative, zero, huge, NaN or infinite; lists of 10^6 values; JSON nested 3000 deep; missing, unknown and
misspelt names; truncated files, other encodings, control characters, pipes, links. `python .ci/kinds.py` counts what
comes of them:

- **clear**: an error in three parts that names the file, the option or the key
- **right**: a finite result that follows from the input; for config.json the logits of transformers
- **obscure**: any other error, or one of a library
- **silently wrong**: a result that does not follow from the input
- **NaN**: a result that is not finite
- **hanging**: more than 10 s of processor time, or more than 4 GB of memory

{kinds}

## Definitions used in the examples

```python
{prelude}
```

## The inputs
"""


def table():
    """Read the table: packages, common prelude, and rows."""
    return tomllib.loads((FOLDER / "table.toml").read_text(encoding="utf-8"))


def tried(row, prelude):
    """Run the code of a row and return the error that it raises, or None."""
    names = {"__name__": "bad_input"}
    exec(compile(prelude, "prelude", "exec"), names)
    try:
        exec(compile(row.get("code", ""), f"row {row['number']}", "exec"), names)
    except (ValueError, TypeError) as error:
        return error
    return None


def section(row, prelude):
    """Write the section of one row."""
    peers = ", ".join(f"{package} {came}" for package, came in row["peers"].items())
    says = textwrap.fill(row.get("says", ""), WIDTH)
    parts = [f"### {row['number']}. {row['input'][0].upper()}{row['input'][1:]}", f"Other packages: {peers}."]
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
    """Summarise how often each outcome occurs."""
    here = Counter(row["here"] for row in rows)
    there = Counter(letter for row in rows for came in row["peers"].values() for letter in LETTERS.findall(came))
    wrong = there["S"] + there["N"] + there["Z"]
    text = (
        f"Of the {there.total()} outcomes in other packages, {wrong} are a wrong number or NaN, "
        f"{there['O']} an obscure error, "
        f"{there['C']} a clear error, and {there['k']} correct. In Ordinate {here['error']} of the rows are clear "
        f"errors and {here['right']} correct; {here['n/a']} do not apply."
    )
    return textwrap.fill(text, WIDTH)


def kinds():
    """Write the table of the kinds of outcome of wrong inputs at each gate."""
    found = json.loads((FOLDER / "kinds.json").read_text(encoding="utf-8"))
    totals = sum(map(Counter, found.values()), Counter())
    rows = [*found.items(), ("**all**", totals)]
    lines = [f"| {name} | {' | '.join(str(one.get(kind, 0)) for kind in KINDS)} |" for name, one in rows]
    head = [f"| gate | {' | '.join(KINDS)} |", f"| --- |{' ---: |' * len(KINDS)}"]
    return "\n".join([*head, *lines])


def page():
    """Write the whole page."""
    found = table()
    packages = "\n".join(f"- **{letter}**: {name}" for letter, name in found["packages"].items())
    head = HEAD.format(
        packages=packages, counts=counts(found["row"]), prelude=found["prelude"].strip(), kinds=kinds()
    )
    return head + "\n" + "\n\n".join(section(row, found["prelude"]) for row in found["row"]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
