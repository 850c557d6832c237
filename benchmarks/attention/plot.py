"""The chart of docs/images/attention.png, which `.ci/pictures.py` draws from the newest saved result."""

from typing import Any

import altair as alt

from benchmarks.harness.plot import PANELS, quantity_axis, tokens_axis

LABELS = {
    "t5@": "Ordinate, learned bias",
    "sdpa, no bias": "PyTorch, no bias at all",
    "sdpa, bias as a tensor, learned": "PyTorch, learned bias",
    "x-transformers, relative bias": "x-transformers, learned bias",
    "transformers, T5": "transformers (T5), learned bias",
}
# the colour-blind safe palette of Okabe and Ito
COLOURS = ("#0072b2", "#000000", "#d55e00", "#009e73", "#cc79a7")
TITLE = "Attention, forward and backward: float32, 8 heads of 64, one text, one CPU thread"


def chart(points: list[dict[str, Any]]) -> alt.HConcatChart:
    """Seconds and memory over the number of tokens, a line per contender."""
    rows = [
        {"tokens": point["tokens"], "who": LABELS[point["who"]]}
        | {"seconds": point["seconds"], "megabytes": point["bytes"] / 1e6}
        for point in points
    ]
    base = alt.Chart(alt.Data(values=rows), width=330, height=260).mark_line(point=True, strokeWidth=2)
    x = tokens_axis(sorted({row["tokens"] for row in rows}), title="tokens", grid=False)
    colour = alt.Color("who:N", title=None).scale(domain=list(LABELS.values()), range=list(COLOURS))
    panels = [base.encode(x=x, y=quantity_axis(what, title=title), color=colour) for what, title in PANELS.items()]
    legend = {"orient": "bottom", "columns": 3, "labelLimit": 260}
    return alt.hconcat(*panels, title=TITLE).configure_legend(**legend).configure_view(stroke=None)
