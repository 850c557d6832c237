"""A scheme in a notebook: its options and plots of what each hook does."""

from typing import Any

from ordinate.core.html_display import beside, heatmap, line_plot
from ordinate.schemes._plot_data import HeatmapData, LinePlotData, scheme_plots


def scheme_html(scheme: Any) -> str:
    """Return a scheme as HTML: its options, and a plot for each hook, for identical tokens."""
    options = scheme.extra_repr()
    title = f"{type(scheme).__name__}({options})" if options else " ".join(repr(scheme).split())
    try:
        plots = [plot_svg(plot) for plot in scheme_plots(scheme)]
    except (ValueError, RuntimeError) as error:
        # a display must not fail where the object is right, such as a table for another size of image
        return beside(title, [], f"not plotted: {error}")
    return beside(title, plots, "" if plots else "adds nothing")


def plot_svg(plot: HeatmapData | LinePlotData) -> str:
    """Draw a plot of a scheme as SVG."""
    if isinstance(plot, HeatmapData):
        return heatmap(plot.numbers, title=plot.title, rows=plot.rows, columns=plot.columns)
    return line_plot(plot.lines, title=plot.title, along=plot.along)
