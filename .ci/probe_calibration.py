"""Write the tables of docs/probe_calibration.md from saved simulations: `python .ci/probe_calibration.py`."""

from itertools import groupby
from pathlib import Path
from typing import Any

from generated_parts import Pages, write
from speeds import newest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "probe_calibration.md"
CELLS = ROOT / "benchmarks" / "probe_calibration"
HEADS = ("model of known truth", "what", "measured", "draws", "share [95 %]")


def probes() -> list[str]:
    """Names of the probes that have cells."""
    return sorted(path.stem for path in CELLS.glob("*.py") if not path.name.startswith("_"))


def rows(cells: list[dict[str, Any]]) -> list[str]:
    """Format a row for each estimate or claim; a star marks what is outside the accepted range."""
    lines = [f"| {' | '.join(HEADS)} |", "|---|---|---|---|---|"]
    for model, group in groupby(cells, key=lambda cell: cell["model"]):
        for turn, cell in enumerate(group):
            share = f"{100 * cell['share']:.1f} % [{100 * cell['low']:.1f}, {100 * cell['high']:.1f}]"
            star = "" if cell["accepted"] else r" \*"
            first = "" if turn else model
            lines.append(f"| {first} | {cell['what']} | {cell['kind']} | {cell['draws']:,} | {share}{star} |")
    return lines


def tables() -> str:
    """Return the table of each probe."""
    parts = []
    for name in probes():
        path, found = newest(f"probe_calibration-{name}")
        said = f"From `{path.relative_to(ROOT)}`:"
        parts += [f"### {name}", "", said, "", *rows(found["results"]["cells"]), ""]
    return "\n".join(parts).rstrip()


def pages() -> Pages:
    """Return the page with its tables."""
    return {PAGE: {"measured": tables()}}


if __name__ == "__main__":
    write(pages())
