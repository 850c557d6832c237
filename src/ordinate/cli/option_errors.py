"""Errors of command-line options in one line: what must hold; what came; what to do."""

from difflib import get_close_matches
from functools import singledispatch
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from cyclopts import CoercionError, CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError
from cyclopts.exceptions import RepeatArgumentError, UnknownCommandError
from pydantic import ValidationError

from ordinate.core.checks import shown
from ordinate.study.options import option_name

HELP = "see the command with --help"
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}


def describe_option_error(error: CycloptsError | ValidationError) -> str:
    """Return the message of an error that the parser of the command line or the check of a plan has raised."""
    cause = error if isinstance(error, ValidationError) else error.__cause__ or error.__context__
    if isinstance(cause, ValidationError):
        return "\n".join(dict.fromkeys(_lines(cause)))
    return " ".join(_described(error).split())


@singledispatch
def _described(error: Any) -> str:
    cause = error.__cause__
    # an error of our own, raised while the options were put together
    told = str(cause) if isinstance(cause, ValueError | TypeError) and str(cause).count("; ") >= 2 else ""
    return told or f"options must fit together; {str(error).rstrip('.')}; {HELP}"


@_described.register
def _(error: UnknownOptionError) -> str:
    came = error.token.keyword or error.token.value
    known = sorted({name for argument in error.argument_collection for name in argument.names})
    where = "" if error.token.source == "cli" else f" in {error.token.source}"
    return (
        f"an option must be one of the command's; got {_cut(came)}{where}; {_nearest(came.partition('=')[0], known)}"
    )


@_described.register
def _(error: UnknownCommandError) -> str:
    came = (error.unused_tokens or [""])[0]
    known = sorted(name for name in error.app or () if not name.startswith("-"))
    listed = ", ".join(known)
    return f"a command must be one of {listed}; got {shown(came)}; {_nearest(came, known)}"


@_described.register
def _(error: MissingArgumentError) -> str:
    name = error.keyword or (error.argument.name if error.argument else "an option")
    return f"{name} must have a value; got none; give one, or {HELP}"


@_described.register
def _(error: RepeatArgumentError) -> str:
    return f"{error.token.keyword} must be given only once; got it twice; leave one out"


@_described.register
def _(error: UnusedCliTokensError) -> str:
    came = ", ".join(map(shown, (error.unused_tokens or [])[:3]))
    return f"every argument must be one that the command takes; got {came} as well; leave it out, or {HELP}"


@_described.register
def _(error: CoercionError) -> str:
    token, argument = error.token, error.argument
    name = (token.keyword if token else None) or (argument.name if argument else "a value")
    value = token.value if token else ""
    came = shown(value)
    where = f" in {token.source}" if token and token.source != "cli" else ""
    kinds = _kinds(error.target_type)
    choices = [str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if choices:
        return f"{name} must be one of {', '.join(choices)}; got {came}{where}; {_nearest(value, choices)}"
    wanted = " or ".join(WORDS.get(kind, str(getattr(kind, "__name__", kind))) for kind in kinds)
    return f"{name} must be {wanted or 'a single value'}; got {came}{where}; {HELP}"


def _kinds(kind: Any) -> list[Any]:
    """Return the types that a value may have; None is not given on the command line."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [part for part in parts if part not in (None, type(None))]


def _nearest(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else HELP


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}..."


def _lines(error: ValidationError) -> list[str]:
    """Return a line for each value that is not accepted."""
    found = [one for one in error.errors(include_url=False) if one["type"] != "too_short"] or error.errors()
    lines = []
    for one in found:
        name = next((option_name(part) for part in one["loc"] if isinstance(part, str)), "")
        must = one["msg"].removeprefix("Value error, ").removeprefix("Input should ")
        if must == one["msg"].removeprefix("Value error, ") and must.count("; ") >= 2:
            lines.append(must)
        elif not name:
            lines.append(f"options must fit together; {must}; {HELP}")
        else:
            lines.append(f"{name} must {must[0].lower()}{must[1:]}; got {shown(one['input'])}; {HELP}")
    return lines
