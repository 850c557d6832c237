"""The command line: `ordinate COMMAND`."""

import io
import sys

from cyclopts import App, CycloptsError
from pydantic import ValidationError

from ordinate import __version__
from ordinate.cli.console import SafeConsole
from ordinate.cli.option_errors import describe_option_error

GOOD, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

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
    "report": "Rebuild the report of a study or a probed model from its results.",
    "train": "Train one model.",
    "generate": "Generate text from a prompt with a trained model.",
    "translate": "Translate sentences with a trained model.",
    "fill": "Predict masked tokens of a text with a trained encoder.",
    "classify": "Classify images with a trained model.",
    "list": "List schemes, mixers, tasks, attention backends, corpora.",
    "show": "Describe and plot a scheme.",
    "cite": "Print the BibTeX entry of a scheme.",
    "check": "Run the contract suite on a scheme or mixer of your own.",
}.items():
    app.command(f"ordinate.cli.{name}:app", name=name, help=help_line)


def main() -> None:
    """Run the command line and exit with a status code.

    0: success; 1: part of the work failed; 2: bad input; 130: interrupted.
    """
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
        told = isinstance(error, CycloptsError | ValidationError)
        errors.print("error:", style="bold red", end=" ")
        errors.print(describe_option_error(error) if told else str(error), markup=False, soft_wrap=True)
        code = BAD_INPUT
    sys.exit(code if isinstance(code, int) else GOOD)
