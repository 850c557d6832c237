"""The plots of a scheme as one chart, and saved to a file."""

from collections.abc import Sequence
from pathlib import Path

import altair as alt

from ordinate.core.atomic_files import write_text
from ordinate.core.checks import need_known
from ordinate.report.charts import COLOURS
from ordinate.report.html import chart_page
from ordinate.schemes._plot_data import HeatmapData, LinePlotData

SIDE = 230


def save_plot(path: Path, name: str, drawn: Sequence[HeatmapData | LinePlotData]) -> None:
    """Save plots as .png, .svg, or self-contained .html.

    Args:
        path: output file; its extension determines the format.
        name: name of the scheme, for the title of a page and error messages.
        drawn: plots of the scheme.

    Raises:
        ValueError: an unknown extension, or a scheme with nothing to plot.
    """
    need_known("plot format", path.suffix, (".png", ".svg", ".html"))
    chart = scheme_chart(name, drawn)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        write_text(path, chart_page(name, chart.to_dict()))
    else:
        chart.save(str(path), scale_factor=1.2) if path.suffix == ".png" else chart.save(str(path))


def scheme_chart(name: str, drawn: Sequence[HeatmapData | LinePlotData]) -> alt.ConcatChart:
    """Return the plots of a scheme beside each other, as one chart.

    Args:
        name: name of the scheme, for error messages.
        drawn: plots of the scheme.

    Raises:
        ValueError: a scheme with nothing to plot.
    """
    if not drawn:
        raise ValueError(f"a scheme must have something to plot; {name} has nothing; combine it with another: +")
    charts = [_table(one) if isinstance(one, HeatmapData) else _curves(one) for one in drawn]
    chart = alt.concat(*charts, columns=3, spacing=28).resolve_scale(color="independent")
    return chart.configure_view(stroke=None).configure_title(fontSize=11, anchor="start", fontWeight="normal")


def _table(table: HeatmapData) -> alt.Chart:
    rows = [
        {"row": row, "column": column, "number": number}
        for row, numbers in enumerate(table.numbers)
        for column, number in enumerate(numbers)
        if number == number
    ]
    low, high = min(cell["number"] for cell in rows), max(cell["number"] for cell in rows)
    # a diverging colour map centred on zero where both signs occur
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


def _curves(curves: LinePlotData) -> alt.Chart:
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
