"""A question asked from Python, and an answer that shows itself in a notebook."""

from dataclasses import dataclass, replace
from typing import Any

from ordinate.attachment import attach
from ordinate.finding import Estimate, Finding, estimate
from ordinate.lab.conduct import Question, answer
from ordinate.lab.material import fitting, texts
from ordinate.probe import BUDGET, Material
from ordinate.report.notebook import card
from ordinate.subject import Subject, Unfit


@dataclass(frozen=True)
class Answer:
    """What was found about one question. The last line of a notebook's cell shows it with its charts.

    Args:
        finding: the numbers.
    """

    finding: Finding

    def __getitem__(self, name: str) -> Estimate:
        """The estimate of this name."""
        return estimate([self.finding], self.finding.question, name)

    def __str__(self) -> str:
        return f"{self.finding.title}\n{self.finding.answer}"

    def _repr_html_(self) -> str:
        return card(self.finding)


def ask(
    model: object,
    question: str,
    *,
    text: str = "stdlib",
    material: Material | None = None,
    sequences: int = 64,
    length: int = 512,
    budget: float = BUDGET,
    seed: int = 0,
    **options: Any,
) -> Answer:
    """Ask what position does inside a model.

    Args:
        model: a model of ours or of transformers, or the folder of one, which knows its tokenizer; or a subject.
        question: order, closeness, ... (`ordinate list probes`).
        text: what it reads: a corpus by name, or a file or folder.
        material: what it reads instead, ready made: images, or texts in tokens.
        sequences: pieces of text at most.
        length: tokens of a piece; no more than the model takes.
        budget: operations that it may spend on looking, and two thirds as many on changing; where all would cost
            more, less is read.
        seed: decides every random number.
        options: of the probe.

    Raises:
        ValueError: an unknown question or option, a text that is too short, or images of another size.
        Unfit: a model that cannot be looked into.
    """
    asked = Question(question, options)
    asked.make()
    subject = model if isinstance(model, Subject) else attach(model)
    read = material or material_of(subject, text, sequences=sequences, length=length)
    if isinstance(read, Material):
        read = replace(fitting(subject, read), budget=budget)
    return Answer(answer(asked, subject, read, seed, lambda done: None))


def attached(model: object, name: str | None = None, stage: int | None = None) -> Subject | Unfit:
    """The model as it is asked, or why it cannot be looked into."""
    try:
        return attach(model, name=name, stage=stage)
    except Unfit as reason:
        return reason


def material_of(subject: Subject | Unfit, text: str, *, sequences: int, length: int) -> Material | Unfit:
    """What it reads, or why it can read nothing."""
    try:
        if isinstance(subject, Unfit):
            return subject
        return texts(subject, text, sequences=sequences, length=length)
    except Unfit as reason:
        return reason
