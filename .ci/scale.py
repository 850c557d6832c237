"""Write the table of docs/scale.md from the newest saved simulation: `python .ci/scale.py`."""

from pathlib import Path
from typing import Any

from generated_parts import Pages, write
from speeds import newest

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"


def table(found: dict[str, Any]) -> str:
    """Format the results of `./dev bench scale`."""
    rows = [
        ("resolving the plan, with a check of every model", f"{found['settle_seconds']:.0f} s"),
        ("overhead of the driver per run", f"{found['overhead_ms']:.1f} ms"),
        ("durable write of a result", f"{found['result_ms']:.1f} ms"),
        ("resuming: finding the missing runs", f"{found['going_on_seconds']:.0f} s"),
        ("`ordinate status`", f"{found['status_seconds']:.0f} s"),
        ("report", f"{found['report_seconds']:.0f} s, {found['report_mb']:.1f} MB"),
        ("memory of the driver", f"{found['driver_gb']:.2f} GB, and {found['report_adds_gb']:.2f} GB for the report"),
        ("an empty Ray task", f"{found['ray']['task_ms']:.1f} ms"),
        ("report of a study of 60 runs", f"{found['few_report_seconds']:.1f} s"),
        (f"reading a text of {found['text_mb']:.0f} MB in 20,000 files", f"{found['text_seconds']:.1f} s"),
        ("the same text, unchanged", f"{found['again_seconds']:.1f} s"),
    ]
    lines = [f"| {int(found['runs']):,} runs | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    return "\n".join(lines)


def pages() -> Pages:
    """Return the page with its table."""
    return {PAGE: {"measured": table(newest("scale")[1]["results"])}}


if __name__ == "__main__":
    write(pages())
