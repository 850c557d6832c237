"""The chart of docs/images/mixers.png, which `.ci/pictures.py` draws from the newest saved result."""

from typing import Any

import altair as alt

from benchmarks.harness.plot import PANELS, quantity_axis, tokens_axis
from benchmarks.mixers.members import SOFTMAX

TITLE = "Each mixer (blue) beside softmax attention by PyTorch (grey): forward and backward over the length of a text"
# a blue of the colour-blind safe palette of Okabe and Ito, and grey
OURS, BASE = "#0072b2", "#999999"


def chart(points: list[dict[str, Any]]) -> alt.VConcatChart:
    """A panel for each mixer, of seconds and of memory."""
    rows = [point | {"megabytes": point["bytes"] / 1e6} for point in points]
    base = [row for row in rows if row["who"] == SOFTMAX]
    members = list(dict.fromkeys(row["who"] for row in rows if row["who"] != SOFTMAX))
    beside = [row | {"panel": member} for member in members for row in base]
    own = [row | {"panel": row["who"]} for row in rows if row["who"] != SOFTMAX]
    parts = [_panels(own, beside, what, title) for what, title in PANELS.items()]
    return alt.vconcat(*parts, title=TITLE).configure_view(stroke="#dddddd").configure_title(anchor="start")


def _panels(own: list[dict[str, Any]], beside: list[dict[str, Any]], what: str, title: str) -> alt.FacetChart:
    x, y = tokens_axis([1024, 4096, 16384], title=None), quantity_axis(what, title=None, tickCount=4)
    # one table for all panels: faceting selects the rows of each
    rows = [row | {"colour": BASE} for row in beside] + [row | {"colour": OURS} for row in own]
    lines = alt.Chart(width=130, height=90).mark_line(point=True, strokeWidth=2)
    lines = lines.encode(x=x, y=y, color=alt.Color("colour:N", scale=None))
    header = alt.Header(title=title, titleOrient="top", labelFontWeight="bold")
    return lines.facet(alt.Facet("panel:N", header=header), columns=6, data=alt.Data(values=rows))
