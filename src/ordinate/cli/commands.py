"""The commands of the command line: what each does, and which extra of the package it needs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    Args:
        help: what it does, in a line.
        extra: the extra that installs what it needs; None: nothing beyond the light core.
        function: name of its function, if the module `ordinate.cli.COMMAND` has no `app` of its own.
        resumes: whether it resumes an interrupted one when it is repeated.
    """

    help: str
    extra: str | None
    function: str | None = None
    resumes: bool = False


COMMANDS: Mapping[str, Command] = {
    "study": Command(
        "Train schemes and mixers under equal conditions and report which is best.", "study", resumes=True
    ),
    "status": Command("Show the progress of a study, from another terminal.", "study"),
    "probe": Command("Probe how a model uses position.", "probe", resumes=True),
    "explore": Command("Open a page in which small trained models run live.", "probe"),
    "look": Command("Look at the heads of a model on one sentence.", "probe"),
    "evaluate": Command("Evaluate trained or published models on a text at several lengths.", "study"),
    "compare": Command("Compare models, or the checkpoints of a training run, on the same texts.", "probe"),
    "replicate": Command("Measure published claims about position again.", "probe", resumes=True),
    "report": Command("Rebuild the report of a study or a probed model from its results.", "study"),
    "reproduce": Command("Train a run of a finished study again, and compare the results.", "study", resumes=True),
    "train": Command("Train one model.", "study", resumes=True),
    "generate": Command("Generate text from a prompt with a trained model.", "study"),
    "translate": Command("Translate sentences with a trained model.", "study"),
    "fill": Command("Predict masked tokens of a text with a trained encoder.", "study"),
    "classify": Command("Classify images or texts with a trained model.", "study"),
    "verify": Command("Compare a published checkpoint in Ordinate and in transformers.", "hf"),
    "list": Command("List schemes, mixers, tasks, attention backends, corpora.", None, "show_list"),
    "show": Command("Describe and plot a scheme.", None, "show"),
    "cite": Command("Print the BibTeX entry of a scheme.", None, "cite"),
    "check": Command("Run the contract suite on a scheme or mixer of your own.", None, "check"),
    "build": Command("Compile the C++ kernels ahead of time.", None, "build"),
}
"""All commands by name, in the order of the help."""
SUMMARY = "Position in attention: compare positional schemes and token mixers for transformers on your own text."
EPILOGUE = "Start with: ordinate study   (about five minutes; trains eight schemes and writes one report)"
