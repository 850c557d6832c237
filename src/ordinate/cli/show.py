"""`ordinate show`: description, options and plots of a scheme."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App
from rich.console import Console
from rich.text import Text

from ordinate.cli.console import SafeConsole
from ordinate.cli.list import entry_points
from ordinate.core import catalog

if TYPE_CHECKING:
    from ordinate.schemes._plots import HeatmapData, LinePlotData

# from low to high, for terminals without colours
SHADES = " ░▒▓█"
STEPS = "▁▂▃▄▅▆▇█"

app = App(name="show", help="Describe and plot a scheme.")


@app.default
def show(scheme: str, *, save: Path | None = None) -> int:
    """Print the description and options of a scheme, and plot what it adds, rotates or biases.

    Parameters
    ----------
    scheme
        Its name, with options: sinusoidal:theta=100. A combination: rope+alibi.
    save
        Write the plot to this file instead: .png, .svg or .html.
    """
    from ordinate.schemes._plots import build_scheme, scheme_plots

    drawn = scheme_plots(build_scheme(scheme))
    if save is not None:
        from ordinate.cli.save_plot import save_plot

        save_plot(save, scheme, drawn)
        return 0
    console = SafeConsole()
    for name in dict.fromkeys(catalog.parse(part)[0] for part in scheme.replace("/", "+").split("+")):
        _describe(console, name)
    for picture in drawn:
        console.print(f"\n[bold]{picture.title}[/]", markup=True)
        console.print(_drawn(picture, colours=console.color_system is not None))
    return 0


def _describe(console: Console, name: str) -> None:
    from ordinate.schemes._plots import PLOT_SIZES
    from ordinate.schemes._scheme import Scheme

    kind = catalog.load("ordinate.schemes", Scheme, name)
    console.print(f"[bold]{name}[/] enters at: {entry_points(kind)}", markup=True)
    console.print(f"shift invariant: {'yes' if kind.shift_invariant else 'no'}\n")
    console.print(Text(inspect.getdoc(kind) or ""))
    console.print("\n[bold]options[/]", markup=True)
    for option in catalog.options(kind).values():
        default = "(the model's)" if option.name in PLOT_SIZES else repr(option.default)
        console.print(f"  {option.name} = {default}", markup=False)
    console.print()


def _drawn(picture: "HeatmapData | LinePlotData", *, colours: bool) -> Text:
    from ordinate.schemes._plots import HeatmapData

    if isinstance(picture, HeatmapData):
        legend = f"rows: {picture.rows}, columns: {picture.columns}\n"
        return Text(legend, style="dim").append_text(heat_map(picture.numbers, colours=colours))
    return Text(f"from left to right: {picture.along}, starting at 0\n", style="dim").append_text(
        sparklines(picture.lines)
    )


def heat_map(table: list[list[float]], *, colours: bool = True) -> Text:
    """Render a matrix as a heat map, two characters a cell: blue (low) over grey to red (high), or shades."""
    finite = [number for row in table for number in row if number == number]
    # adding 0.0 turns -0.0 into 0.0
    low, high = min(finite) + 0.0, max(finite) + 0.0
    text = Text()
    for row in table:
        for number in row:
            text.append_text(_cell((number - low) / ((high - low) or 1), colours))
        text.append("\n")
    ends = ("blue", "red") if colours else ("light", "dark")
    text.append(f"from {low:.3g} ({ends[0]}) to {high:.3g} ({ends[1]})")
    return text


def sparklines(lines: dict[str, list[float]]) -> Text:
    """Render each series as a sparkline on a common scale, with its first and last value."""
    finite = [number for line in lines.values() for number in line if number == number]
    low, span = min(finite), (max(finite) - min(finite)) or 1
    widest, text = max(len(name) for name in lines), Text()
    for name, line in lines.items():
        bars = "".join(" " if x != x else STEPS[round((x - low) / span * (len(STEPS) - 1))] for x in line)
        text.append(f"{name:{widest}} {bars}  {line[0] + 0.0:.3g} to {line[-1] + 0.0:.3g}\n")
    text.rstrip()
    return text


def _cell(share: float, colours: bool) -> Text:
    # NaN
    if share != share:
        return Text("  ")
    if colours:
        return Text("  ", style=f"on {_colour(share)}")
    return Text(SHADES[min(int(share * len(SHADES)), len(SHADES) - 1)] * 2)


def _colour(share: float) -> str:
    blue, grey, red = (33, 102, 172), (240, 240, 240), (178, 24, 43)
    start, stop, part = (blue, grey, share * 2) if share < 0.5 else (grey, red, share * 2 - 1)
    return "rgb({},{},{})".format(*(round(a + (b - a) * part) for a, b in zip(start, stop, strict=True)))
