"""Python API: run one probe on a model; the result displays itself in a notebook."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ordinate.core.checks import need, need_seed
from ordinate.core.finding import Estimate, Finding, find_estimate
from ordinate.core.progress import ignore
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing._probe import DEFAULT_BUDGET, ProbeData
from ordinate.probing.runner.default_text import default_text
from ordinate.probing.runner.probe_data import check_input, sample_text
from ordinate.probing.runner.probe_runner import ProbeSpec, run_probe
from ordinate.report.findings import notebook_card


@dataclass(frozen=True)
class ProbeResult:
    """The finding of one probe; a notebook displays it with its charts.

    Args:
        finding: the finding.
    """

    finding: Finding

    def __getitem__(self, name: str) -> Estimate:
        """Return the estimate with this name."""
        return find_estimate([self.finding], self.finding.question, name)

    def __str__(self) -> str:
        return f"{self.finding.title}\n{self.finding.headline}"

    def _repr_html_(self) -> str:
        return notebook_card(self.finding)


def probe(
    model: object,
    probe_name: str,
    *,
    text: str | None = None,
    data: ProbeData | None = None,
    samples: int = 64,
    length: int = 512,
    budget: float = DEFAULT_BUDGET,
    seed: int = 0,
    **options: Any,
) -> ProbeResult:
    """Run one probe on a model.

    Args:
        model: an Ordinate or transformers model, the folder of one (which includes its tokenizer), or a
            `ModelAdapter`.
        probe_name: name of the probe: order_sensitivity, privacy, ... (`ordinate list probes`).
        text: input text: a corpus by name, or a file or folder. None: the text of the model's study, the standard
            library for another Ordinate model, English prose for any other (`default_text`).
        data: prepared input in place of `text`: images or token ids.
        samples: maximum number of text samples.
        length: tokens of a sample; limited to the maximum length of the model.
        budget: operations for observation passes, and two thirds as many for interventions; if all samples would
            cost more, fewer or shorter ones are used.
        seed: random seed.
        options: options of the probe.

    Raises:
        ValueError: an unknown probe or option, a seed below zero or above 2^63 - 1, images of another size than
            the model takes, or token ids beyond its vocabulary.
        NotApplicable: the model cannot be instrumented.
    """
    need_seed(seed)
    asked = ProbeSpec(probe_name, options)
    asked.build()
    subject = model if isinstance(model, ModelAdapter) else attach(model)
    folder = Path(model) if isinstance(model, str | Path) else None
    read = data or text_data(subject, text, sequences=samples, length=length, folder=folder)
    if isinstance(read, ProbeData):
        read = replace(check_input(subject, read), budget=budget)
    return ProbeResult(run_probe(asked, subject, read, seed, ignore))


def try_attach(
    model: object,
    name: str | None = None,
    stage: int | None = None,
    part: str | None = None,
    source: str | None = None,
) -> ModelAdapter | NotApplicable:
    """Attach to a model; return the reason if it cannot be instrumented.

    Raises:
        ValueError: the part reads a source, and none is given.
    """
    try:
        found = attach(model, name=name, stage=stage, part=part, source=source)
    except NotApplicable as reason:
        return reason
    reads = found.info.source_vocabulary > 0
    must = f"the {part} of {found.info.name} reads a source"
    need(source is not None or not reads, must, "got none", "give --source, a sentence that it reads with every text")
    return found


def text_data(
    subject: ModelAdapter | NotApplicable,
    text: str | None,
    *,
    sequences: int,
    length: int,
    folder: Path | None = None,
) -> ProbeData | NotApplicable:
    """Return text samples for a model, or the reason why there are none.

    Args:
        subject: the model, or the reason why it cannot be instrumented.
        text: a corpus by name, or a file or folder; None: the default text of the model, whose source says why.
        sequences: maximum number of samples.
        length: tokens of a sample.
        folder: the folder of the model; None: it has none.
    """
    try:
        if isinstance(subject, NotApplicable):
            return subject
        if text is not None:
            return sample_text(subject, text, sequences=sequences, length=length)
        chosen = default_text(subject, folder)
        found = sample_text(subject, chosen.text, sequences=sequences, length=length)
        return replace(found, source=f"{found.source} ({chosen.reason})") if found.natural else found
    except NotApplicable as reason:
        return reason
