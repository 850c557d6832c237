"""What a study learns from and is measured on: a text, or a task that makes its own sequences."""

from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordinate import catalog
from ordinate.data.store import TokenStore, open_store
from ordinate.models.decoder import Decoder
from ordinate.study.answers import measure_answers
from ordinate.study.measure import measure
from ordinate.study.plan import Plan
from ordinate.task import Task
from ordinate.tasks.text import Text

TEXT = "text"


class Source(ABC):
    """Where the batches of a run come from, and what its model is measured on."""

    @property
    @abstractmethod
    def task(self) -> Task:
        """What to learn."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What decides the results of those who learn from it, as study.json keeps it."""

    @abstractmethod
    def measure(self, model: Decoder) -> dict[str, Any]:
        """The sections of a result that need the trained model."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what belongs to a model beside its weights."""


@dataclass(frozen=True)
class Reading(Source):
    """A text.

    Args:
        store: its tokens.
        plan: of the study.
    """

    store: TokenStore
    plan: Plan

    @property
    def task(self) -> Task:
        """Windows of the text."""
        size = self.store.tokenizer.size
        return Text(tokens=self.store.train, vocabulary=size, length=self.plan.length)

    @property
    def identity(self) -> dict[str, Any]:
        """The text."""
        return {"text": self.store.identity}

    def measure(self, model: Decoder) -> dict[str, Any]:
        """Measure on text that was held out."""
        return measure(model, self.store, self.plan)

    def save(self, folder: Path) -> None:
        """The tokenizer."""
        self.store.tokenizer.save(folder)


@dataclass(frozen=True)
class Answering(Source):
    """A task with questions and answers.

    Args:
        plan: of the study.
    """

    plan: Plan

    @property
    def task(self) -> Task:
        """The task."""
        return make_task(self.plan.task)

    @property
    def identity(self) -> dict[str, Any]:
        """The task and its options."""
        options = {name: getattr(self.task, name) for name in catalog.options(type(self.task))}
        sizes = {"length": self.task.length, "vocabulary": self.task.vocabulary, "chance": self.task.chance}
        return {"task": {"name": catalog.parse(self.plan.task)[0], "options": options, **sizes}}

    def measure(self, model: Decoder) -> dict[str, Any]:
        """Measure on fresh sequences."""
        return measure_answers(model, self.task, self.plan)

    def save(self, folder: Path) -> None:
        """The weights are all there is."""


def make_task(text: str) -> Task:
    """The task that a line names, other than text: recall:pairs=8.

    Raises:
        ValueError: an unknown task or option, or sizes that do not fit.
    """
    name, options = catalog.parse(text)
    kind = catalog.load("ordinate.tasks", Task, name)
    return kind(**catalog.bind(kind, options, {}))


def longest(plan: Plan) -> int:
    """The longest sequence that the models of a plan are to read [tokens]."""
    if plan.task == TEXT:
        return plan.longest
    task, lengths = make_task(plan.task), [plan.length]
    for times in plan.multiples:
        # a task need not have sequences of every length
        with suppress(ValueError):
            lengths.append(task.longer(times).length)
    return max(lengths)


def open_source(data: Path, plan: Plan) -> Source:
    """What the runs of a plan learn from; the tokens of a text lie in the folder `data`."""
    if plan.task == TEXT:
        return Reading(open_store(data), plan)
    return Answering(plan)
