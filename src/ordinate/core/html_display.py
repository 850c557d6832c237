"""Small plots as SVG text, and tables as HTML, without any package: for notebooks and for pages.

Text and axes have the colour of the surrounding text, and nothing is painted behind them, so that they are legible on
light and dark pages. Numbers are rounded to a tenth of a pixel; text is escaped.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 280, 200
# margins of the area that is plotted [pixels]
LEFT, TOP, RIGHT, BOTTOM = 44, 24, 10, 36
# distinguishable with any colour vision, legible on light and dark pages
COLOURS = ("#3b8fd6", "#e07b39", "#3aa676", "#b56bd0", "#c9a227", "#d0608f")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
# steps of opacity of a heatmap
SHADES = 20
FONT = "font-family='system-ui,sans-serif' font-size='10'"


def line_plot(lines: Mapping[str, Sequence[float]], *, title: str, along: str) -> str:
    """Draw one or several curves over 0, 1, 2, ...; numbers that are not finite are left out.

    Args:
        lines: the values of each curve, by its name; an only one needs none.
        title: what is plotted.
        along: label of the horizontal axis.
    """
    finite = [x for line in lines.values() for x in line if math.isfinite(x)]
    low, high = _span(finite)
    most = max([2, *(len(line) for line in lines.values())]) - 1
    parts = [_frame(title, along), *_ticks(low, high, most)]
    for index, line in enumerate(lines.values()):
        colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
        points = [
            f"{_x(place / most)},{_y((value - low) / (high - low))}"
            for place, value in enumerate(line)
            if math.isfinite(value)
        ]
        style = f"stroke='{colour}' stroke-width='1.6' stroke-dasharray='{dash}' fill='none'"
        parts.append(f"<polyline points='{' '.join(points)}' {style}/>")
    return _svg([*parts, *_legend(list(lines))], title)


def heatmap(numbers: Sequence[Sequence[float]], *, title: str, rows: str, columns: str) -> str:
    """Draw a matrix: the larger a number, the more opaque; negative ones are orange if there are positive ones too.

    Args:
        numbers: the matrix, row by row; NaN is left empty.
        title: what is plotted.
        rows: label of the row axis.
        columns: label of the column axis.
    """
    finite = [x for row in numbers for x in row if math.isfinite(x)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    signed = low < 0 < high
    largest = max(-low, high) if signed else (high - low) or 1.0
    cells: dict[tuple[str, int], list[str]] = {}
    height, width = (
        (HEIGHT - TOP - BOTTOM) / max(1, len(numbers)),
        (WIDTH - LEFT - RIGHT) / max(1, len(numbers[0]) if numbers else 0),
    )
    for i, row in enumerate(numbers):
        for j, x in enumerate(row):
            if math.isfinite(x):
                share = abs(x) / largest if signed else ((x - low) / largest if high > low else 1.0)
                key = COLOURS[1 if signed and x < 0 else 0], round(share * SHADES + 1e-3)
                place = f"M{_tenth(LEFT + j * width)} {_tenth(TOP + i * height)}"
                cells.setdefault(key, []).append(f"{place}h{_tenth(width)}v{_tenth(height)}h{_tenth(-width)}z")
    parts = [_frame(title, columns), _text(LEFT - 6, TOP + 8, rows, anchor="end", turned=True)]
    parts += [_shaded(colour, shade, paths) for (colour, shade), paths in sorted(cells.items())]
    # of a mask there is one number only
    told = f"{_number(low)} to {_number(high)}" if high > low else ""
    parts.append(_text(WIDTH - RIGHT, HEIGHT - 6, told, anchor="end"))
    return _svg(parts, title)


def beside(title: str, plots: Sequence[str], note: str = "") -> str:
    """Return plots beside each other under a title, as HTML for a notebook.

    Args:
        title: what is shown; escaped.
        plots: SVG texts.
        note: a sentence below; escaped.
    """
    below = f"<div style='opacity:.75;font-size:.9em'>{escape(note)}</div>" if note else ""
    row = f"<div style='display:flex;flex-wrap:wrap;gap:12px'>{''.join(plots)}</div>" if plots else ""
    return f"<div><div style='margin-bottom:4px'><code>{escape(title)}</code></div>{row}{below}</div>"


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML for a notebook; its text is escaped.

    Args:
        columns: the headings.
        rows: the cells, as text.
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def standalone(svg: str) -> str:
    """Return a plot as a file: its text is dark, or light where the reader's pages are dark."""
    style = "<style>svg{color:#24292f}@media(prefers-color-scheme:dark){svg{color:#d6dbe1}}</style>"
    head, end, rest = svg.partition(">")
    return f"{head}{end}{style}{rest}\n"


def _svg(parts: Sequence[str], title: str) -> str:
    size = f"viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}'"
    about = f"role='img' aria-label='{escape(title, quote=True)}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size} {about} {FONT}>{''.join(parts)}</svg>"


def _shaded(colour: str, shade: int, paths: Sequence[str]) -> str:
    opacity = 0.06 + 0.94 * shade / SHADES
    # without crisp edges thin lines show between the cells
    style = f"shape-rendering='crispEdges' fill='{colour}' fill-opacity='{opacity:.2f}'"
    return f"<path {style} d='{''.join(paths)}'/>"


def _frame(title: str, along: str) -> str:
    box = f"x='{LEFT}' y='{TOP}' width='{WIDTH - LEFT - RIGHT}' height='{HEIGHT - TOP - BOTTOM}'"
    frame = f"<rect {box} fill='none' stroke='currentColor' stroke-opacity='.3'/>"
    return f"{_text(4, 13, title)}{frame}{_text(4, HEIGHT - 6, along)}"


def _ticks(low: float, high: float, most: int) -> list[str]:
    across = [_text(_x(place / most), HEIGHT - BOTTOM + 12, str(place), anchor="middle") for place in (0, most)]
    up = [_text(LEFT - 4, _y(share) + 3, _number(low + share * (high - low)), anchor="end") for share in (0, 0.5, 1)]
    zero = []
    if low < 0 < high:
        y = _y(-low / (high - low))
        zero = [f"<path d='M{LEFT} {y}H{WIDTH - RIGHT}' stroke='currentColor' stroke-opacity='.3'/>"]
    return [*across, *up, *zero]


def _legend(names: Sequence[str]) -> list[str]:
    """The names of several curves in their colours, from the right below the axis."""
    made, right = [], WIDTH - RIGHT
    for index in reversed(range(len(names) if len(names) > 1 else 0)):
        made.append(_text(right, HEIGHT - 6, names[index], anchor="end", colour=COLOURS[index % len(COLOURS)]))
        right -= 5.2 * len(names[index]) + 5
    return made


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 10, colour: str = "", turned: bool = False
) -> str:
    more = f" transform='rotate(-90 {x} {y})'" if turned else ""
    fill = colour or "currentColor"
    place = f"x='{x}' y='{y}' text-anchor='{anchor}' font-size='{size}' fill='{fill}'{more}"
    return f"<text {place}>{escape(text)}</text>" if text else ""


def _span(numbers: Sequence[float]) -> tuple[float, float]:
    """The range of an axis; a constant lies in its middle."""
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    # as close together as rounding leaves numbers that are equal
    if high - low <= 1e-6 * max(abs(low), abs(high), 1e-30):
        return (low - 1, high + 1) if low == 0 else (min(0.0, 2 * low), max(0.0, 2 * low))
    return low, high


def _x(share: float) -> float:
    return _tenth(LEFT + share * (WIDTH - LEFT - RIGHT))


def _y(share: float) -> float:
    return _tenth(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM))


def _tenth(x: float) -> float:
    # not at a tie, where what processors round differently would tell two results apart
    return math.floor(10 * x + 0.5003) / 10


def _number(x: float) -> str:
    # no negative zero
    size, x = abs(x), x + 0.0
    return f"{x:.1e}" if size and (size >= 1e5 or size < 1e-2) else f"{x:.3g}"
