"""Draw docs/images/mixers.png from the newest saved result: `python -m benchmarks.mixers.plot`."""

import json
from pathlib import Path
from typing import Any

import altair as alt

from benchmarks.mixers.members import SOFTMAX
from benchmarks.saving import RESULTS

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "mixers.png"
TITLE = "Each mixer (blue) beside softmax attention by PyTorch (grey): forward and backward over the length of a text"
# told apart by people of every kind of colour vision
OURS, BASE = "#0072b2", "#999999"


def chart(points: list[dict[str, Any]]) -> alt.VConcatChart:
    """A panel for each mixer, of time and of memory."""
    rows = [point | {"megabytes": point["bytes"] / 1e6} for point in points]
    base = [row for row in rows if row["who"] == SOFTMAX]
    members = list(dict.fromkeys(row["who"] for row in rows if row["who"] != SOFTMAX))
    beside = [row | {"panel": member} for member in members for row in base]
    own = [row | {"panel": row["who"]} for row in rows if row["who"] != SOFTMAX]
    parts = [
        _panels(own, beside, what, unit)
        for what, unit in (("seconds", "seconds"), ("megabytes", "memory above the inputs [MB]"))
    ]
    return alt.vconcat(*parts, title=TITLE).configure_view(stroke="#dddddd").configure_title(anchor="start")


def _panels(own: list[dict[str, Any]], beside: list[dict[str, Any]], what: str, unit: str) -> alt.FacetChart:
    tokens = alt.X("tokens:Q", title=None).scale(type="log", base=2).axis(values=[1024, 4096, 16384], format=",d")
    height = alt.Y(f"{what}:Q", title=None).scale(type="log").axis(format="~g", tickCount=4)
    # one table for all panels: each takes its own rows
    rows = [row | {"colour": BASE} for row in beside] + [row | {"colour": OURS} for row in own]
    lines = alt.Chart(width=130, height=90).mark_line(point=True, strokeWidth=2)
    lines = lines.encode(x=tokens, y=height, color=alt.Color("colour:N", scale=None))
    header = alt.Header(title=unit, titleOrient="top", labelFontWeight="bold")
    return lines.facet(alt.Facet("panel:N", header=header), columns=6, data=alt.Data(values=rows))


def main() -> None:
    """Draw it."""
    newest = max(RESULTS.glob("mixers_*.json"), key=lambda path: path.stem.rpartition("_")[2])
    chart(json.loads(newest.read_text(encoding="utf-8"))["results"]["curve"]).save(PICTURE, scale_factor=1.5)
    print(PICTURE)


if __name__ == "__main__":
    main()
