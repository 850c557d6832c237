"""The console of all commands: text of models, files and other people's results cannot control the terminal."""

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from ordinate.cli.plain_text import escape_controls


class SafeConsole(Console):
    """Console that takes text as it is: without markup and emoji codes (a path may hold `[red]` or `:warning:`).

    Control characters are shown and not sent. `print(..., markup=True)` is for texts of our own.

    Args:
        stderr: write to standard error.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False, markup=False)

    def print_whole(self, table: Table) -> None:
        """Print a table of numbers in full: on a narrower terminal, its lines are longer than those of the terminal.

        They would be cut within a number.
        """
        whole = Measurement.get(self, self.options.update(max_width=sys.maxsize), table).maximum
        if whole > self.width:
            table.width = whole
        self.print(table, crop=False)

    def on_broken_pipe(self) -> None:
        """Raise the error, for which the command line has an exit code; rich would exit with 1."""
        # called while a BrokenPipeError is handled
        raise

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        # colours and cursor movements of rich itself are not text: they are styles and control segments
        return super()._render_buffer(
            part if part.control else Segment(escape_controls(part.text), part.style) for part in buffer
        )


def escape_on_terminal(text: str) -> str:
    """Return a text of a model for standard output: escaped on a terminal, as it is in a file or pipe."""
    return escape_controls(text) if sys.stdout.isatty() else text
