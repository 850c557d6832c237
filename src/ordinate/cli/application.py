"""The command line with all commands, which needs the extra `study` or `probe`."""

from collections.abc import Sequence
from typing import Any

from cyclopts import App, CycloptsError, Parameter
from pydantic import ValidationError

from ordinate import __version__
from ordinate.cli.commands import COMMANDS, EPILOGUE, SUMMARY
from ordinate.cli.console import SafeConsole
from ordinate.cli.option_errors import describe_option_error
from ordinate.cli.shown_defaults import format_default

app = App(
    name="ordinate",
    # not help_epilogue, which the help of every command would have
    help=f"{SUMMARY}\n\n{EPILOGUE}",
    # an option that is off by default needs no --no-option
    default_parameter=Parameter(negative="", show_default=format_default),
    version=__version__,
    version_flags=["--version"],
    result_action="return_value",
    console=SafeConsole(),
    # main() says how to resume
    suppress_keyboard_interrupt=False,
)
for name, command in COMMANDS.items():
    # given by name, so that `ordinate --help` does not import torch
    app.command(f"ordinate.cli.{name}:{command.function or 'app'}", name=name, help=command.help)


def run(arguments: Sequence[str]) -> Any:
    """Run a command.

    Raises:
        ValueError: options that do not exist or do not fit, and every wrong input that the command refuses.
    """
    try:
        return app(list(arguments), exit_on_error=False, print_error=False)
    except (CycloptsError, ValidationError) as error:
        raise ValueError(describe_option_error(error)) from error
