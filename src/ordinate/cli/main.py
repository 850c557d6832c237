"""The command line: `ordinate COMMAND`. It needs the standard library only, its commands more."""

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from ordinate._public_names import missing_package
from ordinate.cli.commands import COMMANDS
from ordinate.cli.plain_text import escape_controls
from ordinate.core.checks import need
from ordinate.core.interruption import sigterm_as_interrupt

GOOD, FAILED, BAD_INPUT, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141
# a full disk, a quota, a limit of the size of files
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_HOME = "/nonexistent"
# most characters of a message
LONGEST = 2000
RED, YELLOW = "1;31", "33"


def main() -> None:
    """Run the command line and exit with a status code.

    0: success; 1: part of the work failed; 2: bad input; 130: interrupted, by Ctrl-C or SIGTERM; 141: nobody reads
    the output any more.
    """
    _settle_home()
    _settle_streams()
    for stream in (sys.stdout, sys.stderr):
        # a terminal without UTF-8 must not end a finished study
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        _need_text(sys.argv[1:])
        with sigterm_as_interrupt():
            code = _application()(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        name = sys.argv[1] if len(sys.argv) > 1 else ""
        resumes = name in COMMANDS and COMMANDS[name].resumes
        _say("interrupted; run the same command again to resume" if resumes else "interrupted", "", YELLOW)
        code = INTERRUPTED
    except (ValueError, OSError) as error:
        code = UNREAD if isinstance(error, BrokenPipeError) and _is_unread(sys.stdout) else BAD_INPUT
        if code == BAD_INPUT:
            _say("error:", _shortened(_message(error)), RED)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "ordinate":
            raise
        _say("error:", str(_with_remedy(error)), RED)
        code = BAD_INPUT
    sys.exit(code if isinstance(code, int) else GOOD)


def _need_text(arguments: Sequence[str]) -> None:
    """Raise unless the arguments are text: bytes that are none could not be written to results and pages."""
    for argument in arguments:
        whole = argument.encode("utf-8", "replace").decode() == argument
        remedy = "give it in this encoding (export LC_ALL=C.UTF-8), or rename the file"
        need(whole, f"arguments must be {sys.getfilesystemencoding()} text", f"got {argument!a}", remedy)


def _is_unread(stream: IO[str]) -> bool:
    """Whether nobody reads a stream any more, as in `ordinate list | head`; if so, the rest of it goes nowhere."""
    try:
        # what was refused is no longer in the buffers: only another write tells
        os.write(stream.fileno(), b"\n")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    except io.UnsupportedOperation:
        # no file
        return False
    return False


def _application() -> Callable[[Sequence[str]], Any]:
    """Return the command line with all commands, or that of the light core."""
    if find_spec("cyclopts") is None or find_spec("pydantic") is None or find_spec("rich") is None:
        from ordinate.cli.core_application import run
    else:
        from ordinate.cli.application import run
    return run


def _with_remedy(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error of a missing package, with the line that installs it."""
    if "pip install" in str(error):
        return error
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    extra = COMMANDS[name].extra if name in COMMANDS else None
    return missing_package(error, f"`ordinate {name}`" if name else "`ordinate`", extra or "study")


def _say(first: str, text: str, colour: str) -> None:
    """Write a line to standard error, its first part in a colour if that is a terminal."""
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    begin = f"\x1b[{colour}m{first}\x1b[0m" if coloured else first
    sys.stderr.write(f"{begin} {escape_controls(text)}".rstrip() + "\n")


def _settle_home() -> None:
    """Name a home folder that does not exist if the user has none (a container's user): libraries expect a name."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = NO_HOME


def _settle_streams() -> None:
    """Open empty streams in place of closed ones (`ordinate list >&-`, pythonw on Windows)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open until the end


def _message(error: ValueError | OSError) -> str:
    """Return what is wrong, what came, and what to do."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if "; " in error.strerror:
        # an error of our own
        return error.strerror
    name = f"{error.filename}" if error.filename else "a file"
    if error.errno in FULL:
        return (
            f"the disk must have room; {name} cannot be written ({error.strerror}); free space and repeat the command"
        )
    return f"files must be accessible; {name} is not ({error.strerror}); check the path and its permissions"


def _shortened(message: str) -> str:
    """Return a message without its middle if it repeats an input of great length."""
    return message if len(message) <= LONGEST else f"{message[: LONGEST // 2]} ... {message[-LONGEST // 4 :]}"
