"""Write the tables of docs/parity.md from what `./dev parity --save` measured: `python .ci/parity.py`."""

import json
import math
from pathlib import Path
from typing import Any

from generated_parts import Pages, write

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "parity" / "results.json"
PAGE = ROOT / "docs" / "parity.md"

NEAR = 1e-6
EQUAL = ["Ordinate", "compared", "other package", "max. difference", "after", "reason if above 1e-6"]
ERRORS = ["case", "Ordinate", "error", "other package", "error"]

Row = dict[str, Any]


def within(number: float) -> str:
    """Format a number rounded up to one digit, so that it is an upper bound."""
    if number == 0:
        return "0"
    power = math.floor(math.log10(number))
    digit = math.ceil(round(number / 10**power, 6))
    return f"{digit}e{power}" if digit < 10 else f"1e{power + 1}"


def scheme(row: Row) -> str:
    """Link to the page of a scheme, with its options; compositions are not linked."""
    name, _, options = row["scheme"].partition(":")
    if not name.replace("_", "").isalnum():
        return f"`{row['scheme']}`"
    return f"[{name}](schemes/{name}.md)" + (f" `{options}`" if options else "")


def function(row: Row) -> str:
    """Name the function of the other package; for transformers with the model family."""
    module, _, name = row["oracle"].partition(":")
    _, model, family = module.rpartition(".modeling_")
    return f"{row['package']}: `{f'{family}.' if model else ''}{name}`"


def why(row: Row) -> str:
    """Return the reason for a difference above NEAR."""
    return row["because"] if row["difference"] > NEAR else ""


def wrong(row: Row) -> str:
    """Format the error of the other package, or the exception that it raises."""
    error = row["error"]
    if isinstance(error, str):
        return error
    return f"{error:.2g}" if error < 10 else f"{error:.0f}"


def lines(heading: list[str], rows: list[list[str]]) -> list[str]:
    """Format a table without duplicate lines."""
    return [f"| {' | '.join(cells)} |" for cells in (heading, ["---"] * len(heading))] + list(
        dict.fromkeys(f"| {' | '.join(cells)} |" for cells in rows)
    )


def tables(results: dict[str, Any]) -> dict[str, str]:
    """Return the generated parts of the page by name."""
    rows = results["equal"] + results["errors"]
    versions = sorted({f"{row['package']} {row['version']}" for row in rows}, key=str.lower)
    equal = [
        [scheme(row), row["what"], function(row), within(row["difference"]), row["after"], why(row)]
        for row in results["equal"]
    ]
    errors = [[row["what"], scheme(row), within(row["ours"]), function(row), wrong(row)] for row in results["errors"]]
    return {
        "versions": f"{len(rows)} comparisons, measured with torch {results['torch']}, {', '.join(versions)}.",
        "equal": "\n".join(lines(EQUAL, equal)),
        "errors": "\n".join(lines(ERRORS, errors)),
    }


def pages() -> Pages:
    """Return the page with its tables, from the stored results."""
    return {PAGE: tables(json.loads(RESULTS.read_text(encoding="utf-8")))}


if __name__ == "__main__":
    write(pages())
