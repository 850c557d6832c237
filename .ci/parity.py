"""Write the tables of docs/parity.md from what `./dev parity --save` measured: `python .ci/parity.py`."""

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "parity" / "results.json"
PAGE = ROOT / "docs" / "parity.md"

NEAR = 1e-6

Row = dict[str, Any]


def within(number: float) -> str:
    """A number rounded up to one digit, so that "equal to within" is true."""
    if number == 0:
        return "0"
    power = math.floor(math.log10(number))
    digit = math.ceil(round(number / 10**power, 6))
    return f"{digit}e{power}" if digit < 10 else f"1e{power + 1}"


def scheme(row: Row) -> str:
    """The scheme with a link to its page, and its options; several as they are written."""
    name, _, options = row["scheme"].partition(":")
    if not name.replace("_", "").isalnum():
        return f"`{row['scheme']}`"
    return f"[{name}](schemes/{name}.md)" + (f" `{options}`" if options else "")


def function(row: Row) -> str:
    """What it was compared with; of the many models of transformers, in which."""
    module, _, name = row["oracle"].partition(":")
    _, model, family = module.rpartition(".modeling_")
    return f"{row['package']}: `{f'{family}.' if model else ''}{name}`"


def why(row: Row) -> str:
    """The reason of a difference that is worth one."""
    return row["because"] if row["difference"] > NEAR else ""


def wrong(row: Row) -> str:
    """How far off another is, or the error that it ends with."""
    error = row["error"]
    if isinstance(error, str):
        return error
    return f"{error:.2g}" if error < 10 else f"{error:.0f}"


def lines(heading: list[str], rows: list[list[str]]) -> list[str]:
    """A table; each line of it once."""
    return [f"| {' | '.join(cells)} |" for cells in (heading, ["---"] * len(heading))] + list(
        dict.fromkeys(f"| {' | '.join(cells)} |" for cells in rows)
    )


def tables(results: dict[str, Any]) -> dict[str, str]:
    """Each generated part of the page by the name that stands at its beginning and end."""
    rows = results["equal"] + results["errors"]
    versions = sorted({f"{row['package']} {row['version']}" for row in rows}, key=str.lower)
    equal = [
        [scheme(row), row["what"], function(row), within(row["difference"]), row["after"], why(row)]
        for row in results["equal"]
    ]
    errors = [[row["what"], scheme(row), within(row["ours"]), function(row), wrong(row)] for row in results["errors"]]
    return {
        "versions": f"{len(rows)} comparisons, measured with torch {results['torch']}, {', '.join(versions)}.",
        "equal": "\n".join(lines(["ours", "what", "theirs", "apart", "after", "why not nearer"], equal)),
        "errors": "\n".join(lines(["asked for", "ours", "off by", "theirs", "off by"], errors)),
    }


def filled(page: str, parts: dict[str, str]) -> str:
    """The page with each generated part in its place."""
    for name, text in parts.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not (begin and end):
            raise SystemExit(f"{PAGE} needs the lines <!-- {name} --> and <!-- end of {name} -->")
        page = f"{before}{begin}\n{text}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    measured = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables(measured)), encoding="utf-8")
