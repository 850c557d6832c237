"""Compare with transformers on published families, and write the table of docs/published.md.

`python .ci/families.py` needs the extra `hf`: it runs tests/pretrained and stores its results.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from generated_parts import Pages, write

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "pretrained" / "results.json"
PAGE = ROOT / "docs" / "published.md"
COLUMNS = ("forward", "padded", "cached", "bfloat16", "round trip")


def cell(row: dict[str, float], column: str) -> str:
    """Format the largest difference, rounded up to one digit; a round trip that passed gives the same bits."""
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
    """Return the table in markdown, and the versions of the packages."""
    heading = ["model", *COLUMNS]
    rows = [[name, *(cell(row, column) for column in COLUMNS)] for name, row in found["families"].items()]
    lines = [f"| {' | '.join(cells)} |" for cells in (heading, ["---"] * len(heading), *rows)]
    return "\n".join([*lines, "", f"torch {found['torch']}, transformers {found['transformers']}."])


def pages() -> Pages:
    """Return the page with its table, from the stored results."""
    return {PAGE: {"families": table(json.loads(RESULTS.read_text(encoding="utf-8")))}}


def main() -> None:
    """Run the comparison, store its results, and write the page."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/pretrained", f"--families={RESULTS}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if subprocess.call(command, cwd=ROOT, env=environment):
        raise SystemExit("a comparison failed: the table was not changed")
    write(pages())


if __name__ == "__main__":
    main()
