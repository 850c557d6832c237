"""Run probes on a model one after another; probes that have a finding are skipped."""

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.core.finding import Finding
from ordinate.core.progress import OnProgress, Progress, for_item
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.measures.samples import truncated
from ordinate.probing.runner.probe_folder import ProbeFolder

PACKAGE = "ordinate.probing.probes"
# fewest tokens of a text that a probe reads
MIN_TOKENS = 8
RANDOM_INPUT_CAVEAT = "The input was random tokens: the effect of order and position in real text was not measured."
ENCODER_ONLY = "Only the encoder of this model is probed, not its decoder."


@dataclass(frozen=True)
class ProbeSpec:
    """A probe and its options.

    Args:
        name: name of the probe.
        options: arguments of its constructor.
    """

    name: str
    options: dict[str, Any]

    @property
    def probe_class(self) -> type[Probe]:
        """The class of the probe."""
        return catalog.load(PACKAGE, Probe, self.name)

    def build(self) -> Probe:
        """Construct the probe with its options; the others have their defaults."""
        return self.probe_class(**catalog.bind(self.probe_class, self.options, {}))


def parse_probes(listed: Sequence[str] = ()) -> list[ProbeSpec]:
    """Parse names of probes with options (order_sensitivity:windows=2;8); all probes if none is given.

    Raises:
        ValueError: an unknown probe or option, or a probe given twice.
    """
    found = [ProbeSpec(*catalog.parse(line)) for line in listed or catalog.names(PACKAGE)]
    for question in found:
        question.build()
    names = [question.name for question in found]
    need(len(set(names)) == len(names), "each probe may be given once", f"got {', '.join(names)}", "drop one")
    return found


def _complete(found: Finding, subject: ModelAdapter, material: ProbeData, cut: str) -> Finding:
    """Say which part was measured, and add caveats on parts that were not, on random input and on cut texts."""
    if subject.info.kind == "encoder-decoder":
        found = found.model_copy(update={"answer": f"{found.answer} {ENCODER_ONLY}"})
    left = f"Of this model, {subject.info.left_out}." if subject.info.left_out else ""
    added = (left, "" if material.natural else RANDOM_INPUT_CAVEAT, cut)
    return found.model_copy(update={"caveats": (*filter(None, added), *found.caveats)})


def _within_training(subject: ModelAdapter, material: ProbeData) -> tuple[ProbeData, str]:
    """Cut texts to the trained length of the model, beyond which a probe would measure how it fails; and say so."""
    trained = subject.trained_length
    if material.ids is None or trained is None or material.ids.shape[1] <= max(trained, MIN_TOKENS):
        return material, ""
    cut = f"Texts of {material.ids.shape[1]:,} tokens were cut to {trained:,}, the trained length of the model."
    return truncated(material, max(trained, MIN_TOKENS)), cut


def run_probe(
    question: ProbeSpec,
    subject: ModelAdapter | NotApplicable,
    material: ProbeData | NotApplicable,
    seed: int,
    on_progress: OnProgress,
) -> Finding:
    """Run one probe; if it does not apply to the model, return a skipped finding with the reason."""
    began, probe = time.perf_counter(), question.build()
    try:
        if isinstance(subject, NotApplicable):
            raise subject
        subject.info.need_one_text("probes")
        if isinstance(material, NotApplicable):
            raise material
        read, cut = (material, "") if probe.beyond_training else _within_training(subject, material)
        return _complete(probe.measure(subject, read, seed, on_progress), subject, read, cut)
    except NotApplicable as reason:
        seconds = time.perf_counter() - began
        answered = {"status": "skipped", "answer": str(reason), "seed": seed, "seconds": seconds}
        return Finding.model_validate({"question": question.name, "title": probe.title, **answered})


def run_probes(
    asked: Sequence[ProbeSpec],
    subject: ModelAdapter | NotApplicable,
    material: ProbeData | NotApplicable,
    folder: ProbeFolder,
    seed: int,
    on_progress: OnProgress,
) -> list[str]:
    """Run the probes that have no finding yet.

    Args:
        asked: the probes.
        subject: the model, or the reason why it cannot be instrumented.
        material: the input, or the reason why there is none.
        folder: the folder of findings; the caller holds its lock.
        seed: random seed.
        on_progress: receives, with the name of the probe as item, its start (stage measuring), the fraction done, and
            its outcome: measured, skipped or failed, with the answer or the reason as message, or already done (a
            finding of an earlier run exists).

    Returns:
        The names of probes that failed.
    """
    failed = []
    for question in asked:
        kept = folder.load(question.name, question.options)
        if kept is not None:
            # its answer is in the report and not repeated
            on_progress(Progress(question.name, "already done", 1.0, 1.0))
            continue
        on_progress(Progress(question.name, "measuring", message=folder.describe_damage(question.name)))
        try:
            finding = run_probe(question, subject, material, seed, for_item(on_progress, question.name))
            folder.save(question.name, question.options, finding)
        # a probe that fails must not stop the others
        except Exception as error:
            message = "".join(traceback.format_exception(error))
            folder.save_failure(question.name, question.probe_class.title, message)
            on_progress(Progress(question.name, "failed", message=f"{type(error).__name__}: {error}"))
            failed.append(question.name)
        else:
            on_progress(Progress(question.name, finding.status, 1.0, 1.0, message=finding.headline))
    return failed
