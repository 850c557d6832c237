"""Charts of seconds and memory over the number of tokens, from saved results."""

import json
from typing import Any

import altair as alt

from benchmarks.harness.saving import RESULTS

PANELS = {"seconds": "seconds", "megabytes": "memory above the inputs [MB]"}
"""The title of each quantity."""


def newest_curve(name: str) -> list[dict[str, Any]]:
    """Return the points (tokens, who, seconds, bytes) of the result of a benchmark that was saved last."""
    newest = max(RESULTS.glob(f"{name}_*.json"), key=lambda path: path.stem.rpartition("_")[2])
    return json.loads(newest.read_text(encoding="utf-8"))["results"]["curve"]


def tokens_axis(values: list[int], *, title: str | None, **axis: Any) -> alt.X:
    """Logarithmic axis of the number of tokens."""
    x = alt.X("tokens:Q", title=title).scale(type="log", base=2)
    return x.axis(values=values, format=",d", **axis)


def quantity_axis(name: str, *, title: str | None, **axis: Any) -> alt.Y:
    """Logarithmic axis of a quantity."""
    return alt.Y(f"{name}:Q", title=title).scale(type="log").axis(format="~g", **axis)
