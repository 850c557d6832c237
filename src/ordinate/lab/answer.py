"""A question asked from Python, and an answer that shows itself in a notebook."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordinate.finding import Estimate, Finding, estimate
from ordinate.lab.conduct import Question, answer
from ordinate.lab.material import texts
from ordinate.lab.model import read_model, subject_of
from ordinate.probe import Material
from ordinate.report.notebook import card
from ordinate.subject import Subject, Unfit
from ordinate.tokenizer import Tokenizer


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
    tokenizer: Tokenizer | None = None,
    material: Material | None = None,
    sequences: int = 64,
    length: int = 512,
    seed: int = 0,
    **options: Any,
) -> Answer:
    """Ask what position does inside a model.

    Args:
        model: a model of ours or of transformers, the folder of one, or a subject.
        question: order, closeness, ... (`ordinate list probes`).
        text: what it reads: a corpus by name, or a file or folder.
        tokenizer: makes its tokens; of a folder, the one that lies there.
        material: what it reads instead, ready made: images, or texts in tokens.
        sequences: pieces of text at most.
        length: tokens of a piece; no more than the model takes.
        seed: decides every random number.
        options: of the probe.

    Raises:
        ValueError: an unknown question or option, a text that is too short, or a model that cannot be looked into.
    """
    asked = Question(question, options)
    asked.make()
    subject = _subject(model, tokenizer)
    read = material or material_of(subject, text, sequences=sequences, length=length)
    return Answer(answer(asked, subject, read, seed, lambda done: None))


def material_of(subject: Subject, text: str, *, sequences: int, length: int) -> Material | Unfit:
    """What it reads, or why it can read nothing."""
    try:
        return texts(subject, text, sequences=sequences, length=length)
    except Unfit as reason:
        return reason


def _subject(model: object, tokenizer: Tokenizer | None) -> Subject:
    if not isinstance(model, str | Path):
        return subject_of(model, tokenizer=tokenizer)
    found, beside = read_model(Path(model))
    return subject_of(found, name=Path(model).name, tokenizer=tokenizer or beside)
