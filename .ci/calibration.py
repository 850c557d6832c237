"""Write the tables of docs/study.md from the newest saved simulations: `python .ci/calibration.py`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from generated_parts import Pages, write
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


# what is shown of the simulation of further seeds: like the default study, where seeds differ and where less
SHOWN = {"models": 8, "documents": 60}
LARGEST = {"seeds": "seeds", "both": "seeds and documents alike"}
WAYS = {"one seed": "one seed of each", "leaders": "and a second of the best two", "two seeds": "two seeds of each"}


def leaders_table(cells: Sequence[dict[str, Any]]) -> str:
    """Format how often the best model and how often another is recommended, by what varies most and the advantage."""
    lines = [
        "| largest variance | advantage of the best | " + " | ".join(WAYS.values()) + " |",
        "|---|---|" + "---|" * len(WAYS),
    ]
    for cell in cells:
        if any(cell[name] != value for name, value in SHOWN.items()) or cell["component"] not in LARGEST:
            continue
        columns = []
        for way in WAYS:
            best, other = (100 * cell["recommended"][way][name] for name in ("first", "other"))
            columns.append(f"{best:.0f} %, {other:.0f} %" if cell["advantage"] else f"{best + other:.0f} %")
        advantage = f"{cell['advantage']:.0f}" if cell["advantage"] else "none: any is named"
        lines.append(" | ".join([f"| {LARGEST[cell['component']]}", advantage, *columns]) + " |")
    return "\n".join(lines)


def leaders_text() -> str:
    """Return the table of further seeds, with what it shows."""
    path, found = newest("leaders")
    results = found["results"]
    return (
        f"{leaders_table(results['cells'])}\n\nHow often the best, and how often another scheme is recommended alone "
        f"of {SHOWN['models']} schemes on {SHOWN['documents']} documents; {results['draws']:,} draws a row. The "
        "advantage is in standard deviations of the difference between two trained models "
        f"(`benchmarks/results/{path.name}`, which has more settings)."
    )


def pages() -> Pages:
    """Return the page with its tables."""
    path, found = newest("calibration")
    results = found["results"]
    models = sorted({cell["models"] for cell in results["cells"] if "false_winners" in cell})
    text = (
        f"{table(results['cells'])}\n\n{results['draws']:,} draws in each of {len(results['cells'])} settings; false "
        f"winners in studies of {models[0]} to {models[-1]} schemes that do not differ; power "
        f"for a difference of four standard errors (`benchmarks/results/{path.name}`). The paired t-test over seeds "
        "ignores the choice of documents."
    )
    return {PAGE: {"calibration": text, "leaders": leaders_text()}}


if __name__ == "__main__":
    write(pages())
