"""The portrait of a scheme as a file."""

from collections.abc import Sequence
from pathlib import Path

import altair as alt

from ordinate.checks import need_known
from ordinate.portrait import Curves, Table
from ordinate.report.charts import COLOURS

SIDE = 230


def save_picture(path: Path, name: str, drawn: Sequence[Table | Curves]) -> None:
    """Write a picture: .png, .svg, or .html without anything from the network.

    Args:
        path: where to; its ending says which.
        name: the scheme, for the title.
        drawn: its portrait.

    Raises:
        ValueError: another ending, or a scheme that does nothing.
    """
    need_known("kind of picture", path.suffix, (".png", ".svg", ".html"))
    if not drawn:
        raise ValueError(f"a picture needs something to show; {name} does nothing by itself; draw it with another: +")
    charts = [_table(one) if isinstance(one, Table) else _curves(one) for one in drawn]
    chart = alt.concat(*charts, columns=3, spacing=28).resolve_scale(color="independent")
    chart = chart.configure_view(stroke=None).configure_title(fontSize=11, anchor="start", fontWeight="normal")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        chart.save(str(path), inline=True)
    else:
        chart.save(str(path), scale_factor=1.2) if path.suffix == ".png" else chart.save(str(path))


def _table(table: Table) -> alt.Chart:
    rows = [
        {"row": row, "column": column, "number": number}
        for row, numbers in enumerate(table.numbers)
        for column, number in enumerate(numbers)
        if number == number
    ]
    low, high = min(cell["number"] for cell in rows), max(cell["number"] for cell in rows)
    # colours part at zero where there are numbers on both sides of it
    reach = max(abs(low), abs(high)) or 1.0
    scheme, domain = ("blueorange", [-reach, reach]) if low < 0 < high else ("viridis", [low, high])
    axis = alt.Axis(labelOverlap=True, ticks=False, domain=False, values=list(range(0, 1000, 4)))
    return (
        alt.Chart(alt.Data(values=rows), title=alt.Title(table.title, limit=SIDE + 60))
        .mark_rect()
        .encode(
            x=alt.X("column:O", title=table.columns, axis=axis),
            y=alt.Y("row:O", title=table.rows, axis=axis),
            color=alt.Color("number:Q", title=None)
            .scale(scheme=scheme, domain=domain)
            .legend(gradientLength=SIDE - 40, gradientThickness=8),
        )
        .properties(width=SIDE, height=SIDE)
    )


def _curves(curves: Curves) -> alt.Chart:
    rows = [
        {"line": name, "place": place, "number": number}
        for name, line in curves.lines.items()
        for place, number in enumerate(line)
        if number == number
    ]
    names = list(curves.lines)
    legend = alt.Legend(orient="bottom", title=None) if len(names) > 1 else None
    return (
        alt.Chart(alt.Data(values=rows), title=alt.Title(curves.title, limit=SIDE + 60))
        .mark_line(point=alt.OverlayMarkDef(size=12), strokeWidth=1.5)
        .encode(
            x=alt.X("place:Q", title=curves.along).axis(grid=False),
            y=alt.Y("number:Q", title=None).scale(zero=False),
            color=alt.Color("line:N", legend=legend).scale(domain=names, range=list(COLOURS[: len(names)])),
        )
        .properties(width=SIDE, height=SIDE)
    )
