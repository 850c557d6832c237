"""What the models of a study learn from and are measured on: the contract, and how one is found."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ordinate import catalog
from ordinate.models.kinds import Model
from ordinate.models.shape import Shape
from ordinate.study.plan import Plan
from ordinate.task import Task

PACKAGE = "ordinate.study.sources"
# of every task that makes its own sequences
QUESTIONS = "questions"


@dataclass(frozen=True)
class Sizes:
    """What the data decides of a model.

    Args:
        fields: fields of its shape.
        trained: the longest input of training [tokens].
        longest: the longest input that it is measured on [tokens].
    """

    fields: dict[str, Any]
    trained: int
    longest: int


class Source(ABC):
    """Where the batches of a run come from, and what its model is measured on.

    Args:
        plan: of the study.
        data: where what is prepared lies, in the study's folder.
    """

    nature: ClassVar[str]
    """What sort of thing is learned, in words that follow "recall ..."."""

    def __init__(self, plan: Plan, data: Path) -> None:
        self.plan, self.data = plan, data

    @classmethod
    @abstractmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """The length of a training sequence, and a size of the vocabulary to try shapes with; nothing is read.

        Raises:
            ValueError: an option of the task that does not exist, or sizes that do not fit.
        """

    @classmethod
    def sizes(cls, plan: Plan, vocabulary: int) -> Sizes:
        """What it decides of a model."""
        return Sizes({"vocabulary": vocabulary}, plan.length, plan.longest)

    @classmethod
    def taken_from(cls, plan: Plan, shape: Shape) -> dict[str, Any]:
        """What the trained model that a plan begins with decides of it.

        Args:
            plan: which names the model's folder.
            shape: the model's.

        Raises:
            ValueError: a model that cannot learn from this.
        """
        return {}

    @abstractmethod
    def prepare(self, tell: Callable[[str], None]) -> None:
        """Put what is learned from into the data folder, unless it is there already.

        Args:
            tell: is told what is being read.

        Raises:
            ValueError: what is to be read is empty, unreadable, or too little.
        """

    @property
    @abstractmethod
    def task(self) -> Task:
        """What to learn."""

    @property
    @abstractmethod
    def aside(self) -> Task:
        """What learning rates are chosen on: nothing that runs of a study that tunes are trained or measured on."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, dict[str, Any]]:
        """What decides the results of those who learn from it, as study.json keeps it."""

    def complete(self, shape: Shape) -> Shape:
        """The shape of a run's model with what only the data know: the names of classes."""
        return shape

    @abstractmethod
    def measure(self, model: Model) -> dict[str, Any]:
        """The sections of a result that need the trained model."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what belongs to a model beside its weights."""


def source_of(plan: Plan) -> type[Source]:
    """The kind of source that a plan's task has; a task that makes its own sequences has questions."""
    name = catalog.parse(plan.task)[0]
    own = [one for one in catalog.names(PACKAGE) if one != QUESTIONS]
    return catalog.load(PACKAGE, Source, name if name in own else QUESTIONS)


def kind_of(text: str) -> tuple[type[Task], dict[str, Any]]:
    """The task that a line names, and its options: recall:pairs=8.

    Raises:
        ValueError: an unknown task or option.
    """
    name, given = catalog.parse(text)
    kind = catalog.load("ordinate.tasks", Task, name)
    return kind, catalog.read_options(kind, given)


def make_task(text: str) -> Task:
    """The task of this line, of those that make their own sequences.

    Raises:
        ValueError: an unknown task or option, or sizes that do not fit.
    """
    name, given = catalog.parse(text)
    kind = catalog.load("ordinate.tasks", Task, name)
    return kind(**catalog.bind(kind, given, {}))
