"""HTML page about a checkpoint in Ordinate and in transformers: the answer, the error of each check, details."""

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from ordinate.report.html import content_policy, template_environment

BAR_HEIGHT = 24
# width of the figure in its own units
EXTENT = 1000.0
AGREES = "Each difference is within the rounding errors that were measured on this checkpoint."
FAILED = "A check that transformers cannot compute says nothing about either library."
DIFFERS = "A difference above its tolerance is not rounding: one of the libraries reads the checkpoint differently."


def verification_page(result: Mapping[str, Any], command: str) -> str:
    """Return a self-contained HTML page without scripts; every text from the data is escaped.

    Args:
        result: what `Verification.to_dict` returns.
        command: the command that computed it.
    """
    versions = result["versions"]
    text = "" if result["tokens"] is None else f", texts of {result['tokens']} tokens"
    checks = result["checks"]
    differs = any(check["state"] == "differs" for check in checks)
    return (
        template_environment()
        .get_template("verification.html.jinja")
        .render(
            policy=content_policy(),
            title=f"{PurePath(result['folder']).name} in Ordinate and in transformers",
            lead=f"{result['architecture']}, {result['parameters']:,} parameters{text}",
            agrees=result["agrees"],
            answer=result["answer"],
            explanation=AGREES if result["agrees"] else DIFFERS if differs else FAILED,
            plot=_plot([check for check in checks if check["error"] is not None]),
            checks=[_cells(check) | {"differences": list(map(_cells, check["differences"]))} for check in checks],
            command=command,
            facts=[("folder", result["folder"]), ("family", result["family"]), *versions.items()],
        )
    )


def number(value: float | None) -> str:
    """Format an error with two digits; none as a dash."""
    return "–" if value is None else "0" if value == 0 else f"{value:.1e}"


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its numbers as text."""
    return dict(row) | {name: number(row[name]) for name in ("error", "largest", "tolerance") if name in row}


def _plot(checks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return bars of errors and lines of tolerances on a logarithmic axis; None without any check."""
    known = [x for check in checks for x in (check["error"], check["tolerance"]) if 0 < x < math.inf]
    if not known:
        return None
    low, high = math.floor(math.log10(min(known))) - 1, math.ceil(math.log10(max(known)))

    def place(value: float) -> float:
        power = high if value == math.inf else low if value <= 0 else math.log10(value)
        return round(EXTENT * (power - low) / (high - low), 1)

    bars = [
        {
            "name": check["name"],
            "x": place(check["error"]),
            "limit": place(check["tolerance"]),
            "over": check["state"] != "agrees",
            "y": BAR_HEIGHT * (row + 0.5),
            "told": f"{check['name']}: error {number(check['error'])}, tolerance {number(check['tolerance'])}",
        }
        for row, check in enumerate(checks)
    ]
    grid = [place(10.0**power) for power in range(low, high + 1)]
    ends = {"low": f"1e{low}", "high": f"1e{high}"}
    return {"bars": bars, "grid": grid, "height": BAR_HEIGHT * len(bars), **ends}
