"""A task that makes its own sequences, and asks questions."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ordinate import catalog
from ordinate.models.kinds import Model
from ordinate.study.answers import measure_answers
from ordinate.study.plan import Plan
from ordinate.study.source import Sizes, Source, make_task
from ordinate.task import Task


class Questions(Source):
    """A task with questions and answers."""

    nature = "makes its own sequences"

    @classmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """The task's own."""
        task = make_task(plan.task)
        return task.length, task.vocabulary

    @classmethod
    def sizes(cls, plan: Plan, vocabulary: int) -> Sizes:
        """The longest is that of the longest sequences that the task can make."""
        task, lengths = make_task(plan.task), [plan.length]
        for times in plan.multiples:
            # a task need not have sequences of every length
            with suppress(ValueError):
                lengths.append(task.longer(times).length)
        return Sizes({"vocabulary": vocabulary}, plan.length, max(lengths))

    def prepare(self, tell: Callable[[str], None]) -> None:
        """Nothing is read."""

    @property
    def task(self) -> Task:
        """The task."""
        return make_task(self.plan.task)

    @property
    def aside(self) -> Task:
        """The task, which has sequences enough: those that are drawn from one seed come from no other."""
        return self.task

    @property
    def identity(self) -> dict[str, dict[str, Any]]:
        """The task and its options."""
        options = {name: getattr(self.task, name) for name in catalog.options(type(self.task))}
        sizes = {"length": self.task.length, "vocabulary": self.task.vocabulary, "chance": self.task.chance}
        return {"task": {"name": catalog.parse(self.plan.task)[0], "options": options, **sizes}}

    def measure(self, model: Model) -> dict[str, Any]:
        """Measure on fresh sequences."""
        return measure_answers(model, self.task, self.plan)

    def save(self, folder: Path) -> None:
        """The weights are all there is."""
