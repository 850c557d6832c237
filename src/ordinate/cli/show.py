"""`ordinate show`: description, options and plots of a scheme."""

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ordinate.cli.list import entry_points
from ordinate.cli.plain_text import has_colours, styled, write_line
from ordinate.core import catalog
from ordinate.core.output_folder import check_output_file

if TYPE_CHECKING:
    from ordinate.schemes._plot_data import HeatmapData, LinePlotData

# from low to high, for terminals without colours; and where the encoding of the output lacks the first
SHADES, PLAIN_SHADES = " ░▒▓█", " .:+#"
STEPS, PLAIN_STEPS = "▁▂▃▄▅▆▇█", "01234567"


def show(scheme: str, *, save: Path | None = None) -> int:
    """Print the description and options of a scheme, and plot what it adds, rotates or biases.

    Parameters
    ----------
    scheme
        Its name, with options: sinusoidal:theta=100. A combination: rope+alibi.
    save
        Write the plot to this file instead: .png, .svg or .html.
    """
    from ordinate.schemes._plot_data import scheme_plots
    from ordinate.schemes._plots import build_scheme
    from ordinate.schemes._spec import SchemeSpec

    if save is not None:
        check_output_file(save, "--save")
    drawn = scheme_plots(build_scheme(scheme))
    if save is not None:
        from ordinate.cli.save_plot import save_plot

        save_plot(save, scheme, drawn)
        return 0
    spec = SchemeSpec(scheme)
    for name in dict.fromkeys(catalog.parse(single)[0] for single in spec.split_schemes(0)):
        _describe(name)
    for picture in drawn:
        write_line("\n" + styled(picture.title, "bold"))
        write_line(_drawn(picture))
    return 0


def _describe(name: str) -> None:
    from ordinate.schemes._plot_data import PLOT_SIZES
    from ordinate.schemes._spec import SchemeSpec

    kind = SchemeSpec.class_named(name)
    write_line(styled(name, "bold"), "enters at:", entry_points(kind))
    write_line(f"shift invariant: {'yes' if kind.shift_invariant else 'no'}\n")
    write_line(styled(inspect.getdoc(kind) or ""))
    write_line("\n" + styled("options", "bold"))
    for option in catalog.options(kind).values():
        default = "(the model's)" if option.name in PLOT_SIZES else repr(option.default)
        write_line(styled(f"  {option.name} = {default}"))
    write_line()


def _drawn(picture: "HeatmapData | LinePlotData") -> str:
    from ordinate.schemes._plot_data import HeatmapData

    if isinstance(picture, HeatmapData):
        legend = f"rows: {picture.rows}, columns: {picture.columns}"
        return f"{styled(legend, 'dim')}\n{heat_map(picture.numbers, colours=has_colours())}"
    along = f"from left to right: {picture.along}, starting at 0"
    return f"{styled(along, 'dim')}\n{sparklines(picture.lines)}"


def heat_map(table: list[list[float]], *, colours: bool = True) -> str:
    """Render a matrix as a heat map, two characters a cell: blue (low) over grey to red (high), or shades."""
    finite = [number for row in table for number in row if number == number]
    # adding 0.0 turns -0.0 into 0.0
    low, high = min(finite) + 0.0, max(finite) + 0.0
    lines = ["".join(_cell((number - low) / ((high - low) or 1), colours) for number in row) for row in table]
    ends = ("blue", "red") if colours else ("light", "dark")
    return "\n".join([*lines, f"from {low:.3g} ({ends[0]}) to {high:.3g} ({ends[1]})"])


def sparklines(lines: dict[str, list[float]]) -> str:
    """Render each series as a sparkline on a common scale, with its first and last value."""
    finite = [number for line in lines.values() for number in line if number == number]
    low, span = min(finite), (max(finite) - min(finite)) or 1
    widest, drawn, steps = max(len(name) for name in lines), [], _writable(STEPS, PLAIN_STEPS)
    for name, line in lines.items():
        bars = "".join(" " if x != x else steps[round((x - low) / span * (len(steps) - 1))] for x in line)
        drawn.append(f"{name:{widest}} {bars}  {line[0] + 0.0:.3g} to {line[-1] + 0.0:.3g}")
    return "\n".join(drawn)


def _cell(share: float, colours: bool) -> str:
    # NaN
    if share != share:
        return "  "
    if colours:
        return f"\x1b[48;2;{_colour(share)}m  \x1b[0m"
    shades = _writable(SHADES, PLAIN_SHADES)
    return shades[min(int(share * len(shades)), len(shades) - 1)] * 2


def _writable(signs: str, plain: str) -> str:
    """The signs if the encoding of standard output has them, else plain ones."""
    try:
        signs.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return plain
    return signs


def _colour(share: float) -> str:
    """Red, green and blue of a colour between blue, grey and red, as terminals take them."""
    blue, grey, red = (33, 102, 172), (240, 240, 240), (178, 24, 43)
    start, stop, part = (blue, grey, share * 2) if share < 0.5 else (grey, red, share * 2 - 1)
    return ";".join(str(round(a + (b - a) * part)) for a, b in zip(start, stop, strict=True))
