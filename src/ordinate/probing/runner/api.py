"""Python API: run one probe on a model; the result displays itself in a notebook."""

from dataclasses import dataclass, replace
from typing import Any

from ordinate.core.finding import Estimate, Finding, find_estimate
from ordinate.core.progress import ignore
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing._probe import DEFAULT_BUDGET, ProbeData
from ordinate.probing.runner.probe_data import check_input, default_text, sample_text
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
        text: input text: a corpus by name, or a file or folder; None: source code for an Ordinate model (stdlib),
            English prose for others (docs).
        data: prepared input in place of `text`: images or token ids.
        samples: maximum number of text samples.
        length: tokens of a sample; limited to the maximum length of the model.
        budget: operations for observation passes, and two thirds as many for interventions; if all samples would
            cost more, fewer or shorter ones are used.
        seed: random seed.
        options: options of the probe.

    Raises:
        ValueError: an unknown probe or option, or images of another size than the model takes.
        NotApplicable: the model cannot be instrumented.
    """
    asked = ProbeSpec(probe_name, options)
    asked.build()
    subject = model if isinstance(model, ModelAdapter) else attach(model)
    read = data or text_data(subject, text or default_text(subject), sequences=samples, length=length)
    if isinstance(read, ProbeData):
        read = replace(check_input(subject, read), budget=budget)
    return ProbeResult(run_probe(asked, subject, read, seed, ignore))


def try_attach(model: object, name: str | None = None, stage: int | None = None) -> ModelAdapter | NotApplicable:
    """Attach to a model; return the reason if it cannot be instrumented."""
    try:
        return attach(model, name=name, stage=stage)
    except NotApplicable as reason:
        return reason


def text_data(
    subject: ModelAdapter | NotApplicable, text: str, *, sequences: int, length: int
) -> ProbeData | NotApplicable:
    """Return text samples for a model, or the reason why there are none."""
    try:
        if isinstance(subject, NotApplicable):
            return subject
        return sample_text(subject, text, sequences=sequences, length=length)
    except NotApplicable as reason:
        return reason
