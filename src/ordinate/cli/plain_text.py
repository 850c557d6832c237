"""Text on the terminal for the commands of the light core, which has the standard library only."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

# control characters, except tab and line feed: with them a text could move the cursor, or write to the clipboard;
# and those that change the direction of the text after them
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
# columns of a table where the terminal does not tell its width, and narrowest last column
WIDTH, NARROWEST = 100, 30


def escape_controls(text: str) -> str:
    """Return a text with its control characters written out in hexadecimal."""
    return CONTROL.sub(lambda found: f"\\x{code:02x}" if (code := ord(found[0])) < 256 else f"\\u{code:04x}", text)


def has_colours() -> bool:
    """Whether standard output is a terminal with colours, which the variable NO_COLOR does not forbid."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def styled(text: str, *styles: str) -> str:
    """Return a text in these styles if the terminal has colours; its control characters are written out."""
    safe = escape_controls(text)
    return f"\x1b[{';'.join(STYLES[style] for style in styles)}m{safe}\x1b[0m" if styles and has_colours() else safe


def write_line(*parts: str) -> None:
    """Write texts, made by `styled`, as a line of standard output."""
    sys.stdout.write(" ".join(parts) + "\n")
    sys.stdout.flush()


def write_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table; the last column is wrapped to the width of the terminal."""
    rows = [[escape_controls(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header) - 1)]
    start = sum(widths) + len(widths)
    last = max(NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns - start)
    for row in (header, *rows):
        named = "".join(f"{cell:{width}} " for cell, width in zip(row, widths, strict=False))
        lines = textwrap.wrap(row[-1], last) or [""]
        text = "\n".join([named + lines[0], *(" " * start + line for line in lines[1:])])
        write_line(f"\x1b[1m{text}\x1b[0m" if row is header and has_colours() else text)
