"""Data source for synthetic tasks, which generate their sequences."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from ordinate.core import catalog
from ordinate.core.progress import OnProgress
from ordinate.data.task import Task
from ordinate.evaluation.quantity import ACCURACY
from ordinate.evaluation.task import evaluate_task
from ordinate.models.registry import Model
from ordinate.study.data_source import DataSizes, DataSource, make_task
from ordinate.study.plan import Plan


class SyntheticSource(DataSource):
    """Newly generated sequences of questions and answers."""

    summary = "generates its sequences"
    quantity = ACCURACY

    @classmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """Return length and vocabulary size of the task."""
        task = make_task(plan.task)
        return task.length, task.vocabulary

    @classmethod
    def sizes(cls, plan: Plan, vocabulary: int) -> DataSizes:
        """Return the sizes, with the longest input among the task's extended lengths."""
        task, lengths = make_task(plan.task), [plan.length]
        for times in plan.eval_length_multiples:
            # a task need not have sequences of every length
            with suppress(ValueError):
                lengths.append(task.longer(times).length)
        return DataSizes({"vocabulary": vocabulary}, plan.length, max(lengths))

    def prepare(self, on_progress: OnProgress) -> None:
        """Do nothing: sequences are generated when needed."""

    @property
    def task(self) -> Task:
        """The training task."""
        return make_task(self.plan.task)

    @property
    def tuning_task(self) -> Task:
        """The same task: sequences from another seed are new."""
        return self.task

    @property
    def identity(self) -> dict[str, dict[str, Any]]:
        """Name, options and sizes of the task."""
        options = {name: getattr(self.task, name) for name in catalog.options(type(self.task))}
        sizes = {
            "length": self.task.length,
            "vocabulary": self.task.vocabulary,
            "chance": self.task.baseline_accuracy,
        }
        return {"task": {"name": catalog.parse(self.plan.task)[0], "options": options, **sizes}}

    def measure(self, model: Model) -> dict[str, Any]:
        """Evaluate on newly generated sequences."""
        return evaluate_task(model, self.task, self.plan)

    def save(self, folder: Path) -> None:
        """Do nothing: a model of a task has no tokenizer."""
