"""The console of all commands: text of models, files and other people's results cannot control the terminal."""

import re
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.segment import Segment

# control characters, except tab and line feed: with them a text could move the cursor, or write to the clipboard;
# and those that change the direction of the text after them
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class SafeConsole(Console):
    """Console that takes text as it is: without markup and emoji codes (a path may hold `[red]` or `:warning:`).

    Control characters are shown and not sent. `print(..., markup=True)` is for texts of our own.

    Args:
        stderr: write to standard error.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False, markup=False)

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        # colours and cursor movements of rich itself are not text: they are styles and control segments
        return super()._render_buffer(
            part if part.control else Segment(escape_controls(part.text), part.style) for part in buffer
        )


def escape_controls(text: str) -> str:
    """Return a text with its control characters written out in hexadecimal."""
    return CONTROL.sub(lambda found: f"\\x{code:02x}" if (code := ord(found[0])) < 256 else f"\\u{code:04x}", text)


def escape_on_terminal(text: str) -> str:
    """Return a text of a model for standard output: escaped on a terminal, as it is in a file or pipe."""
    return escape_controls(text) if sys.stdout.isatty() else text
