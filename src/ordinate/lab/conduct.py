"""Questions put to a model, one after another; what has been answered is not asked again."""

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from ordinate import catalog
from ordinate.checks import need
from ordinate.finding import Finding
from ordinate.lab.folder import Folder
from ordinate.probe import Material, Probe
from ordinate.subject import Subject, Unfit

PACKAGE = "ordinate.probes"
NO_TEXT = "It read random tokens: what order and position are worth to it in real texts was not measured."


@dataclass(frozen=True)
class Question:
    """A probe and its options.

    Args:
        name: of the probe.
        options: given to its constructor.
    """

    name: str
    options: dict[str, Any]

    @property
    def kind(self) -> type[Probe]:
        """The class of the probe."""
        return catalog.load(PACKAGE, Probe, self.name)

    def make(self) -> Probe:
        """The probe."""
        return self.kind(**catalog.bind(self.kind, self.options, {}))


@runtime_checkable
class Listener(Protocol):
    """Somebody who wants to know how far the questions are."""

    def asked(self, question: Question) -> None:
        """This one is being asked."""

    def told(self, question: Question, done: float) -> None:
        """So much of it is done, between 0 and 1."""

    def ended(self, question: Question, how: Literal["measured", "skipped", "failed", "kept"], why: str) -> None:
        """It is answered, cannot be asked, went wrong, or had been answered before."""


def questions(listed: Sequence[str] = ()) -> list[Question]:
    """The questions of these names, options inline (order:windows=2;8); all where none is named.

    Raises:
        ValueError: an unknown question or option, or one twice.
    """
    found = [Question(*catalog.parse(line)) for line in listed or catalog.names(PACKAGE)]
    for question in found:
        question.make()
    names = [question.name for question in found]
    need(len(set(names)) == len(names), "each question is asked once", f"got {', '.join(names)}", "drop one")
    return found


def _complete(found: Finding, subject: Subject, material: Material) -> Finding:
    """With what of the model is not measured, and that what it read means nothing."""
    left = [f"Of this model {subject.facts.left_out}."] if subject.facts.left_out else []
    return found.model_copy(update={"caveats": (*left, *(() if material.natural else (NO_TEXT,)), *found.caveats)})


def answer(question: Question, subject: Subject | Unfit, material: Material | Unfit, seed: int, tell: Any) -> Finding:
    """What is found; where it cannot be asked of this model, that it cannot and why."""
    began, probe = time.perf_counter(), question.make()
    try:
        if isinstance(subject, Unfit):
            raise subject
        if isinstance(material, Unfit):
            raise material
        return _complete(probe.measure(subject, material, seed, tell), subject, material)
    except Unfit as reason:
        seconds = time.perf_counter() - began
        answered = {"status": "skipped", "answer": str(reason), "seed": seed, "seconds": seconds}
        return Finding.model_validate({"question": question.name, "title": probe.title, **answered})


def conduct(
    asked: Sequence[Question],
    subject: Subject | Unfit,
    material: Material | Unfit,
    folder: Folder,
    seed: int,
    listener: Listener,
) -> list[str]:
    """Ask what has not been asked; the names of questions that failed.

    Args:
        asked: the questions.
        subject: the model, or why it cannot be looked into.
        material: what it reads, or why it reads nothing.
        folder: where answers are kept; its lock is held.
        seed: decides every random number.
        listener: is told how far it is.
    """
    failed = []
    for question in asked:
        kept = folder.found(question.name, question.options)
        if kept is not None:
            listener.ended(question, "kept", kept.answer)
            continue
        listener.asked(question)
        try:
            finding = answer(question, subject, material, seed, lambda done, own=question: listener.told(own, done))
            folder.keep(question.name, question.options, finding)
        # whatever goes wrong with one question leaves the others as they are
        except Exception as error:
            said = "".join(traceback.format_exception(error))
            folder.keep_failure(question.name, question.kind.title, said)
            listener.ended(question, "failed", f"{type(error).__name__}: {error}")
            failed.append(question.name)
        else:
            listener.ended(question, finding.status, finding.answer)
    return failed
