"""A map of what a translation looks at in its source."""

from collections.abc import Sequence

import altair as alt

# pixels of a cell, and of the longest side
CELL, SIDE = 26, 640


def crossing(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]]) -> alt.Chart:
    """A heat map: a row for each token of the target, a column for each of the source.

    Args:
        source: the tokens that are looked at.
        target: the tokens that are said.
        weights: for each token of the target, how much it takes from each of the source; a row sums to 1.
    """
    columns, rows = ([f"{place} {shown(token)}" for place, token in enumerate(side)] for side in (source, target))
    cells = [
        {"source": column, "target": row, "weight": round(weight, 4)}
        for row, line in zip(rows, weights, strict=True)
        for column, weight in zip(columns, line, strict=True)
    ]
    tips = ["target:N", "source:N", alt.Tooltip("weight:Q", format=".3f")]
    axis = alt.Axis(ticks=False, domain=False, labelLimit=220)
    return (
        alt.Chart(alt.Data(values=cells))
        .mark_rect()
        .encode(
            x=alt.X("source:N", sort=columns, title="source", axis=axis),
            y=alt.Y("target:N", sort=rows, title="target", axis=axis),
            color=alt.Color("weight:Q", title="weight").scale(scheme="viridis", domainMin=0),
            tooltip=tips,
        )
        .properties(width=min(SIDE, CELL * len(columns)), height=min(SIDE, CELL * len(rows)))
    )


def shown(token: str) -> str:
    """A token as it can be seen: a space as an open box, what has no picture as a mark."""
    seen = "".join("␣" if c == " " else c if c.isprintable() else "\ufffd" for c in token)
    return seen or "∅"
