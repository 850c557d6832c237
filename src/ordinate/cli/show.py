"""`ordinate show`: what a scheme is, and a picture of what it does."""

import inspect
from typing import TYPE_CHECKING

from cyclopts import App
from rich.console import Console
from rich.text import Text

from ordinate import catalog
from ordinate.cli.list import places

if TYPE_CHECKING:
    from ordinate.scheme import Scheme

SIZES = {
    "width": 32,
    "layers": 2,
    "heads": 4,
    "kv_heads": 4,
    "head_width": 32,
    "max_length": 64,
    "scale": 1.0,
    "dropout": 0.0,
}
# from low to high, where there are no colours
SHADES = " ░▒▓█"
ROWS = 24

app = App(name="show", help="Say what a scheme is, and draw what it does.")


@app.default
def show(scheme: str) -> int:
    """Say what a scheme is and what its options are, and draw what it adds, rotates or biases.

    Parameters
    ----------
    scheme
        Its name, options inline: sinusoidal:theta=100.
    """
    from ordinate.scheme import Scheme

    name, given = catalog.parse(scheme)
    kind = catalog.load("ordinate.schemes", Scheme, name)
    member = kind(**catalog.bind(kind, given, SIZES))
    console = Console(highlight=False)
    console.print(f"[bold]{name}[/] enters at: {places(kind)}")
    console.print(f"shift invariant: {'yes' if kind.shift_invariant else 'no'}\n")
    console.print(Text(inspect.getdoc(kind) or ""))
    console.print("\n[bold]options[/]")
    for option in catalog.options(kind).values():
        default = "(the model's)" if option.name in SIZES else repr(option.default)
        console.print(f"  {option.name} = {default}", markup=False)
    for title, table in pictures(member):
        console.print(f"\n[bold]{title}[/]")
        console.print(heat_map(table, colours=console.color_system is not None))
    return 0


def pictures(scheme: "Scheme") -> list[tuple[str, list[list[float]]]]:
    """What each hook does at the first positions, as tables of numbers."""
    import torch

    from ordinate.geometry import Geometry

    where = Geometry.causal(ROWS)
    at, drawn = scheme.at(where), []
    with torch.no_grad():
        if "embed" in scheme.hooks:
            marked = at.embed(torch.zeros(1, ROWS, SIZES["width"] - scheme.claims))[0]
            drawn.append(
                ("added to the tokens: a row for each position, a column for each column of the model", marked)
            )
        if {"encode_query", "encode_key"} & set(scheme.hooks):
            ones = torch.ones(1, 1, ROWS, SIZES["head_width"])
            q, k = at.encode(ones, ones)
            drawn.append(("q.k of equal vectors: a row for each query, a column for each key", (q @ k.mT)[0, 0]))
        if at.bias is not None:
            hidden = ~where.visible[0]
            for head in range(0, at.bias.shape[1], max(1, at.bias.shape[1] - 1)):
                title = f"added to the scores of head {head}: a row for each query, a column for each key"
                drawn.append((title, at.bias[0, head].masked_fill(hidden, float("nan"))))
    return [(title, table.tolist()) for title, table in drawn]


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
