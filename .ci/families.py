"""Compare with published models, and write the table of docs/published.md: `python .ci/families.py`."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "checkpoints" / "results.json"
PAGE = ROOT / "docs" / "published.md"
COLUMNS = ("forward", "padded", "cached", "bfloat16", "round trip")


def cell(row: dict[str, float], column: str) -> str:
    """The largest difference, rounded up to one digit; of the way there and back, what it must be."""
    if column not in row:
        return "–"
    if column == "round trip":
        return "same bits"
    number = row[column]
    if not number:
        return "0"
    power = math.floor(math.log10(number))
    digit = math.ceil(number / 10**power)
    return f"{digit}e{power}" if digit < 10 else f"1e{power + 1}"


def table(found: dict[str, Any]) -> str:
    """Lines of markdown, and what they were measured with."""
    heading = ["model", *COLUMNS]
    rows = [[name, *(cell(row, column) for column in COLUMNS)] for name, row in found["families"].items()]
    lines = [f"| {' | '.join(cells)} |" for cells in (heading, ["---"] * len(heading), *rows)]
    return "\n".join([*lines, "", f"torch {found['torch']}, transformers {found['transformers']}."])


def filled(page: str, text: str) -> str:
    """The page with the table in its place."""
    before, begin, rest = page.partition("<!-- families -->\n")
    _, end, after = rest.partition("<!-- end of families -->")
    if not (begin and end):
        raise SystemExit(f"{PAGE} needs the lines <!-- families --> and <!-- end of families -->")
    return f"{before}{begin}\n{text}\n\n{end}{after}"


def main() -> None:
    """Compare, keep what was measured, and write the page."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/checkpoints", f"--families={RESULTS}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if subprocess.call(command, cwd=ROOT, env=environment):
        raise SystemExit("a comparison fails: the table stays as it was")
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), table(found)), encoding="utf-8")


if __name__ == "__main__":
    main()
