"""The command line: `ordinate COMMAND`."""

import errno
import io
import os
import sys
from pathlib import Path

from cyclopts import App, CycloptsError
from pydantic import ValidationError

from ordinate import __version__
from ordinate.cli.console import SafeConsole
from ordinate.cli.option_errors import describe_option_error

GOOD, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
# a full disk, a quota, a limit of the size of files
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_HOME = "/nonexistent"
# most characters of a message
LONGEST = 2000

app = App(
    name="ordinate",
    help="Position in attention: compare positional schemes and token mixers for transformers on your own text.",
    help_epilogue="Start with: ordinate study   (about five minutes; trains eight schemes and writes one report)",
    version=__version__,
    version_flags=["--version"],
    result_action="return_value",
    # main() says how to resume
    suppress_keyboard_interrupt=False,
)
# given by name, so that `ordinate --help` does not import torch
for name, help_line in {
    "study": "Train schemes and mixers under equal conditions and report which is best.",
    "status": "Show the progress of a study, from another terminal.",
    "probe": "Probe how a model uses position.",
    "explore": "Open a page in which small trained models run live.",
    "look": "Look at the heads of a model on one sentence.",
    "evaluate": "Evaluate trained or published models on a text at several lengths.",
    "compare": "Compare models, or the checkpoints of a training run, on the same texts.",
    "replicate": "Measure published claims about position again.",
    "report": "Rebuild the report of a study or a probed model from its results.",
    "reproduce": "Train a run of a finished study again, and compare the results.",
    "train": "Train one model.",
    "generate": "Generate text from a prompt with a trained model.",
    "translate": "Translate sentences with a trained model.",
    "fill": "Predict masked tokens of a text with a trained encoder.",
    "classify": "Classify images or texts with a trained model.",
    "verify": "Compare a published checkpoint in Ordinate and in transformers.",
    "list": "List schemes, mixers, tasks, attention backends, corpora.",
    "show": "Describe and plot a scheme.",
    "cite": "Print the BibTeX entry of a scheme.",
    "check": "Run the contract suite on a scheme or mixer of your own.",
    "build": "Compile the C++ kernels ahead of time.",
}.items():
    app.command(f"ordinate.cli.{name}:app", name=name, help=help_line)


def main() -> None:
    """Run the command line and exit with a status code.

    0: success; 1: part of the work failed; 2: bad input; 130: interrupted.
    """
    _settle_home()
    for stream in (sys.stdout, sys.stderr):
        # a terminal without UTF-8 must not end a finished study
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    errors = SafeConsole(stderr=True)
    try:
        code = app(sys.argv[1:], exit_on_error=False, print_error=False)
    except KeyboardInterrupt:
        errors.print("interrupted; run the same command again to resume", style="yellow")
        code = INTERRUPTED
    except (ValueError, OSError, CycloptsError) as error:
        errors.print("error:", style="bold red", end=" ")
        errors.print(_shortened(_message(error)), markup=False, soft_wrap=True)
        code = BAD_INPUT
    sys.exit(code if isinstance(code, int) else GOOD)


def _settle_home() -> None:
    """Name a home folder that does not exist if the user has none (a container's user): libraries expect a name."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = NO_HOME


def _message(error: ValueError | OSError | CycloptsError) -> str:
    """Return what is wrong, what came, and what to do."""
    if isinstance(error, CycloptsError | ValidationError):
        return describe_option_error(error)
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
