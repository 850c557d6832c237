"""The command line: `ordinate COMMAND`."""

import sys

from cyclopts import App
from rich.console import Console

from ordinate import __version__

GOOD, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

app = App(
    name="ordinate",
    help="Position in attention: compare the ways to tell a transformer where its tokens stand, on your own text.",
    help_epilogue="Begin with: ordinate study   (about five minutes; trains eight schemes and writes one report)",
    version=__version__,
    version_flags=["--version"],
    result_action="return_value",
)
# named, not imported: `ordinate --help` need not wait for torch
for name, help_line in {
    "study": "Train schemes and mixers side by side and report which one to take.",
    "status": "Say how far a study is, from another terminal.",
    "probe": "Measure what position does inside a model.",
    "report": "Build the report of a study or a probed model again from its results.",
    "train": "Train one model.",
    "generate": "Let a trained model go on from a prompt.",
    "translate": "Let a trained model translate.",
    "fill": "Say the hidden words of a text, by a trained encoder.",
    "classify": "Say what images show, by a trained model.",
    "list": "List what there is: schemes, mixers, tasks, routes, corpora.",
    "show": "Say what a scheme is, and draw what it does.",
    "cite": "Print the BibTeX entry of a scheme.",
    "check": "Run the contract suite on a scheme of your own.",
}.items():
    app.command(f"ordinate.cli.{name}:app", name=name, help=help_line)


def main() -> None:
    """Run the command line and leave with an exit code that scripts can use.

    0: done; 1: something that was asked for failed; 2: bad input; 130: interrupted.
    """
    errors = Console(stderr=True, highlight=False)
    try:
        code = app()
    except KeyboardInterrupt:
        errors.print("interrupted; the same command goes on from here", style="yellow")
        code = INTERRUPTED
    except (ValueError, OSError) as error:
        errors.print("error:", style="bold red", end=" ")
        errors.print(str(error), markup=False, soft_wrap=True)
        code = BAD_INPUT
    sys.exit(code if isinstance(code, int) else GOOD)
