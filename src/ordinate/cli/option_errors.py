"""Errors of command-line options in one line: what must hold; what came; what to do."""

from cyclopts import CycloptsError
from pydantic import ValidationError


def describe_option_error(error: CycloptsError | ValidationError) -> str:
    """Return the message of an error that the parser of the command line or the check of a plan has raised."""
    cause = error if isinstance(error, ValidationError) else error.__cause__ or error.__context__
    if isinstance(cause, ValidationError):
        return "\n".join(dict.fromkeys(_lines(cause)))
    return " ".join(str(error).split())


def _lines(error: ValidationError) -> list[str]:
    """Return a line for each value that is not accepted."""
    found = [one for one in error.errors(include_url=False) if one["type"] != "too_short"] or error.errors()
    lines = []
    for one in found:
        name = next((str(part).replace("_", "-") for part in one["loc"] if isinstance(part, str)), "")
        must = one["msg"].removeprefix("Value error, ").removeprefix("Input should ")
        if must == one["msg"].removeprefix("Value error, ") or not name:
            lines.append(must)
        else:
            lines.append(f"--{name} must {must}; got {one['input']!r}; see the command with --help")
    return lines
