"""Write the table of docs/study.md from the newest saved calibration: `python .ci/calibration.py`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages import Pages, write
from speeds import newest

PAGE = Path(__file__).parents[1] / "docs" / "study.md"


def table(cells: Sequence[dict[str, Any]]) -> str:
    """Format the extremes over all settings, by number of seeds."""
    lines = [
        "| seeds | coverage of 95 % intervals | from 20 documents on | false winners, at most | "
        "power from 20 documents on | of the paired t-test over seeds |",
        "|---|---|---|---|---|---|",
    ]
    for seeds in sorted({cell["seeds"] for cell in cells}):
        own = [cell for cell in cells if cell["seeds"] == seeds]
        pairs = [cell for cell in own if "coverage" in cell]
        many = [cell for cell in pairs if cell["documents"] >= 20]
        wrong = max(cell["false_winners"] for cell in own if "false_winners" in cell)
        columns = [
            spread(pairs, "coverage"),
            spread(many, "coverage"),
            f"{100 * wrong:.1f} %",
            spread(many, "power"),
            spread(many, "power_of_t_test"),
        ]
        lines.append(" | ".join([f"| {seeds}", *columns]) + " |")
    return "\n".join(lines)


def spread(cells: Sequence[dict[str, Any]], name: str) -> str:
    """Format the smallest and the largest value."""
    values = [100 * cell[name] for cell in cells if name in cell]
    return f"{min(values):.1f} to {max(values):.1f} %" if values else "–"


def pages() -> Pages:
    """Return the page with its table."""
    path, found = newest("calibration")
    results = found["results"]
    models = sorted({cell["models"] for cell in results["cells"] if "false_winners" in cell})
    text = (
        f"{table(results['cells'])}\n\n{results['draws']:,} draws in each of {len(results['cells'])} settings; false "
        f"winners in studies of {models[0]} to {models[-1]} schemes that do not differ; power "
        f"for a difference of four standard errors (`benchmarks/results/{path.name}`). The paired t-test over seeds "
        "ignores the choice of documents."
    )
    return {PAGE: {"calibration": text}}


if __name__ == "__main__":
    write(pages())
