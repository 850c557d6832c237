"""`ordinate show`: what a scheme is, and a picture of what it does."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App
from rich.console import Console
from rich.text import Text

from ordinate import catalog
from ordinate.cli.list import places

if TYPE_CHECKING:
    from ordinate.portrait import Curves, Table

# from low to high, where there are no colours
SHADES = " ░▒▓█"
STEPS = "▁▂▃▄▅▆▇█"

app = App(name="show", help="Say what a scheme is, and draw what it does.")


@app.default
def show(scheme: str, *, save: Path | None = None) -> int:
    """Say what a scheme is and what its options are, and draw what it adds, rotates or biases.

    Parameters
    ----------
    scheme
        Its name, options inline: sinusoidal:theta=100. Several at once: rope+alibi.
    save
        Write the picture to this file instead: .png, .svg or .html.
    """
    from ordinate.portrait import portrait, read

    drawn = portrait(read(scheme))
    if save is not None:
        from ordinate.cli.picture import save_picture

        save_picture(save, scheme, drawn)
        return 0
    console = Console(highlight=False)
    for name in dict.fromkeys(catalog.parse(part)[0] for part in scheme.replace("/", "+").split("+")):
        _describe(console, name)
    for picture in drawn:
        console.print(f"\n[bold]{picture.title}[/]")
        console.print(_drawn(picture, colours=console.color_system is not None))
    return 0


def _describe(console: Console, name: str) -> None:
    from ordinate.portrait import SIZES
    from ordinate.scheme import Scheme

    kind = catalog.load("ordinate.schemes", Scheme, name)
    console.print(f"[bold]{name}[/] enters at: {places(kind)}")
    console.print(f"shift invariant: {'yes' if kind.shift_invariant else 'no'}\n")
    console.print(Text(inspect.getdoc(kind) or ""))
    console.print("\n[bold]options[/]")
    for option in catalog.options(kind).values():
        default = "(the model's)" if option.name in SIZES else repr(option.default)
        console.print(f"  {option.name} = {default}", markup=False)
    console.print()


def _drawn(picture: "Table | Curves", *, colours: bool) -> Text:
    from ordinate.portrait import Table

    if isinstance(picture, Table):
        legend = f"a row for each {picture.rows}, a column for each {picture.columns}\n"
        return Text(legend, style="dim").append_text(heat_map(picture.numbers, colours=colours))
    return Text(f"from left to right: {picture.along}, from 0 on\n", style="dim").append_text(sparks(picture.lines))


def heat_map(table: list[list[float]], *, colours: bool = True) -> Text:
    """A table of numbers, two characters each, as colours from blue (low) over grey to red (high), or as shades."""
    finite = [number for row in table for number in row if number == number]
    # a negative zero would print its sign
    low, high = min(finite) + 0.0, max(finite) + 0.0
    text = Text()
    for row in table:
        for number in row:
            text.append_text(_cell((number - low) / ((high - low) or 1), colours))
        text.append("\n")
    ends = ("blue", "red") if colours else ("light", "dark")
    text.append(f"from {low:.3g} ({ends[0]}) to {high:.3g} ({ends[1]})")
    return text


def sparks(lines: dict[str, list[float]]) -> Text:
    """A line of bars for each line of numbers, all to one scale, with its first and last number."""
    finite = [number for line in lines.values() for number in line if number == number]
    low, span = min(finite), (max(finite) - min(finite)) or 1
    widest, text = max(len(name) for name in lines), Text()
    for name, line in lines.items():
        bars = "".join(" " if x != x else STEPS[round((x - low) / span * (len(STEPS) - 1))] for x in line)
        text.append(f"{name:{widest}} {bars}  {line[0] + 0.0:.3g} to {line[-1] + 0.0:.3g}\n")
    text.rstrip()
    return text


def _cell(share: float, colours: bool) -> Text:
    if share != share:
        return Text("  ")
    if colours:
        return Text("  ", style=f"on {_colour(share)}")
    return Text(SHADES[min(int(share * len(SHADES)), len(SHADES) - 1)] * 2)


def _colour(share: float) -> str:
    blue, grey, red = (33, 102, 172), (240, 240, 240), (178, 24, 43)
    start, stop, part = (blue, grey, share * 2) if share < 0.5 else (grey, red, share * 2 - 1)
    return "rgb({},{},{})".format(*(round(a + (b - a) * part) for a, b in zip(start, stop, strict=True)))
