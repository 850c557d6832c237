"""The data-source contract: training data and evaluation of each kind of task, and the lookup by task."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.progress import OnProgress, Progress
from ordinate.data.task import Task
from ordinate.evaluation.quantity import Quantity
from ordinate.models.registry import Model
from ordinate.models.shape import Shape
from ordinate.study.plan import Plan

PACKAGE = "ordinate.study.data_sources"
# the source of every task that generates its sequences
SYNTHETIC = "questions"


@dataclass(frozen=True)
class DataSizes:
    """Sizes of a model that its data determines.

    Args:
        shape_fields: fields of the model's shape, such as the vocabulary size.
        training_length: longest training input [tokens].
        longest_length: longest evaluation input [tokens].
    """

    shape_fields: dict[str, Any]
    training_length: int
    longest_length: int


class DataSource(ABC):
    """Training batches and evaluation of a task's models.

    Args:
        plan: the study's plan.
        data: folder of the prepared data.
    """

    summary: ClassVar[str]
    """What the task does, as a predicate that follows its name in messages."""
    quantity: ClassVar[Quantity]
    """What is measured of its models: bits per byte, accuracy ..."""

    def __init__(self, plan: Plan, data: Path) -> None:
        self.plan, self.data = plan, data

    @staticmethod
    def report_left_out(manifest: Mapping[str, Any], on_progress: OnProgress) -> None:
        """Say which files of the data are left out, and why."""
        if left_out := manifest.get("left_out"):
            on_progress(Progress(stage="reading", message=f"left out of the data: {left_out}"))

    @classmethod
    @abstractmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """Return the training length, and a vocabulary size for shape checks, without reading data.

        Raises:
            ValueError: an unknown option of the task, or sizes that do not fit.
        """

    @classmethod
    def sizes(cls, plan: Plan, vocabulary: int) -> DataSizes:
        """Return the model sizes that the data determines."""
        return DataSizes({"vocabulary": vocabulary}, plan.length, plan.longest_length)

    @classmethod
    def fields_of_base(cls, plan: Plan, shape: Shape) -> dict[str, Any]:
        """Return the plan's fields that the trained model it starts from determines.

        Args:
            plan: names the model's folder.
            shape: the model's shape.

        Raises:
            ValueError: the model does not fit this kind of data.
        """
        return {}

    @abstractmethod
    def prepare(self, on_progress: OnProgress) -> None:
        """Write the prepared data, unless it exists.

        Args:
            on_progress: receives, as message, which data is about to be read (stage reading).

        Raises:
            ValueError: the data is empty, unreadable, or too small.
        """

    @property
    @abstractmethod
    def task(self) -> Task:
        """The training task."""

    @property
    @abstractmethod
    def tuning_task(self) -> Task:
        """The task on the tuning split, which tuned studies neither train nor report on."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, dict[str, Any]]:
        """Identity of the data, stored in study.json, which determines results together with the plan."""

    def complete_shape(self, shape: Shape) -> Shape:
        """Add to a model's shape what only the data knows, such as class names."""
        return shape

    @abstractmethod
    def measure(self, model: Model) -> dict[str, Any]:
        """Evaluate the trained model; returns sections of the result."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save files that belong to a model beside its weights, such as the tokenizer."""


def source_of(plan: Plan) -> type[DataSource]:
    """Return the data source of a plan's task; tasks that generate their sequences share one."""
    name = catalog.parse(plan.task)[0]
    own = [one for one in catalog.names(PACKAGE) if one != SYNTHETIC]
    return catalog.load(PACKAGE, DataSource, name if name in own else SYNTHETIC)


def task_class(text: str) -> tuple[type[Task], dict[str, Any]]:
    """Return the class of a task and its options, from a spec such as recall:pairs=8.

    Raises:
        ValueError: an unknown task or option.
    """
    name, given = catalog.parse(text)
    kind = catalog.load("ordinate.data.tasks", Task, name)
    return kind, catalog.read_options(kind, given)


def make_task(text: str) -> Task:
    """Return the task of a spec, for tasks that generate their sequences.

    Raises:
        ValueError: an unknown task or option, or sizes that do not fit.
    """
    name, given = catalog.parse(text)
    kind = catalog.load("ordinate.data.tasks", Task, name)
    return kind(**catalog.bind(kind, given, {}))
