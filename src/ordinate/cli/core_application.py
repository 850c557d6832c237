"""The command line of the light core: commands that need the standard library and PyTorch only."""

import argparse
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ordinate import __version__
from ordinate.cli.commands import COMMANDS, EPILOGUE, SUMMARY


class RaisingParser(argparse.ArgumentParser):
    """Argument parser that raises a ValueError in place of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise a ValueError that names the command's --help."""
        raise ValueError(f"options must fit the command; {message}; see {self.prog} --help")


def run(arguments: Sequence[str]) -> Any:
    """Run a command of the core.

    Raises:
        ValueError: options that do not exist or do not fit, and every wrong input that the command refuses.
        ModuleNotFoundError: a command of an extra that is not installed.
    """
    if arguments[:1] and arguments[0] in COMMANDS and COMMANDS[arguments[0]].function is None:
        extra = COMMANDS[arguments[0]].extra
        raise ModuleNotFoundError(
            f"`ordinate {arguments[0]}` needs packages that are not installed; only the light core is; "
            f'pip install "ordinate[{extra}]"'
        )
    parsed = vars(_parser(arguments[:1]).parse_args(list(arguments) or ["--help"]))
    return _function(parsed.pop("command"))(**parsed)


def _function(name: str) -> Callable[..., Any]:
    return getattr(import_module(f"ordinate.cli.{name}"), typing.cast(str, COMMANDS[name].function))


def _parser(chosen: Sequence[str]) -> RaisingParser:
    lines = [
        f"  {name:<10} {command.help}" + ("" if command.function else f'  (needs "ordinate[{command.extra}]")')
        for name, command in COMMANDS.items()
    ]
    parser = RaisingParser(
        prog="ordinate",
        description=SUMMARY,
        epilog="\n".join(["commands:", *lines, "", EPILOGUE]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    own = [name for name, command in COMMANDS.items() if command.function]
    within = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=RaisingParser)
    for name in own:
        # only the chosen command is imported
        _add_options(within.add_parser(name, help=COMMANDS[name].help), name if name in chosen else None)
    return parser


def _add_options(parser: argparse.ArgumentParser, name: str | None) -> None:
    """Add the parameters of a command's function: those without keyword are positional, truth values are flags."""
    if name is None:
        return
    function = _function(name)
    text = inspect.getdoc(function) or ""
    parser.description = text.partition("\n\nParameters")[0]
    types, section = typing.get_type_hints(function), text.partition("----------\n")[2]
    for parameter in inspect.signature(function).parameters.values():
        kind, default, option = types[parameter.name], parameter.default, f"--{parameter.name.replace('_', '-')}"
        required = default is inspect.Parameter.empty
        found = re.search(rf"^{parameter.name}\n    (.+)", section, re.MULTILINE)
        said = found[1] if found else None
        if kind is bool:
            parser.add_argument(option, action="store_true", help=said)
        elif parameter.kind is parameter.KEYWORD_ONLY:
            read = Path if Path in typing.get_args(kind) else str
            parser.add_argument(option, type=read, default=default, help=said)
        else:
            choices = typing.get_args(kind) or None
            count, usual = (None, None) if required else ("?", default)
            parser.add_argument(parameter.name, nargs=count, default=usual, choices=choices, help=said)
