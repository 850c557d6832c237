"""Draw docs/images/attention.png from the newest saved result: `python -m benchmarks.attention.plot`."""

import json
from pathlib import Path
from typing import Any

import altair as alt

from benchmarks.saving import RESULTS

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "attention.png"
LABELS = {
    "t5@": "Ordinate, learned bias",
    "sdpa, no bias": "PyTorch, no bias at all",
    "sdpa, bias as a tensor, learned": "PyTorch, learned bias",
    "x-transformers, relative bias": "x-transformers, learned bias",
    "transformers, T5": "transformers (T5), learned bias",
}
# told apart by people of every kind of colour vision
COLOURS = ("#0072b2", "#000000", "#d55e00", "#009e73", "#cc79a7")
TITLE = "Attention, forward and backward: float32, 8 heads of 64, one text, one CPU thread"


def chart(points: list[dict[str, Any]]) -> alt.HConcatChart:
    """Time and memory over the length of a text."""
    rows = [
        {"tokens": point["tokens"], "who": LABELS[point["who"]]}
        | {"seconds": point["seconds"], "megabytes": point["bytes"] / 1e6}
        for point in points
    ]
    base = alt.Chart(alt.Data(values=rows), width=330, height=260).mark_line(point=True, strokeWidth=2)
    x = alt.X("tokens:Q", title="tokens").scale(type="log", base=2)
    x = x.axis(values=sorted({row["tokens"] for row in rows}), grid=False, format=",d")
    colour = alt.Color("who:N", title=None).scale(domain=list(LABELS.values()), range=list(COLOURS))
    panels = [
        base.encode(x=x, y=alt.Y(f"{what}:Q", title=title).scale(type="log").axis(format="~g"), color=colour)
        for what, title in (("seconds", "seconds"), ("megabytes", "memory above the inputs [MB]"))
    ]
    legend = {"orient": "bottom", "columns": 3, "labelLimit": 260}
    return alt.hconcat(*panels, title=TITLE).configure_legend(**legend).configure_view(stroke=None)


def main() -> None:
    """Draw it."""
    newest = max(RESULTS.glob("attention_*.json"), key=lambda path: path.stem.rpartition("_")[2])
    chart(json.loads(newest.read_text(encoding="utf-8"))["results"]["curve"]).save(PICTURE, scale_factor=2)
    print(PICTURE)


if __name__ == "__main__":
    main()
