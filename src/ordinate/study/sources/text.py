"""A text, whose next token is to be said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ordinate.data.store import open_store
from ordinate.models.decoder import Decoder
from ordinate.models.kinds import Model
from ordinate.models.shape import Shape
from ordinate.study.aside import part
from ordinate.study.beginning import need_tokenizer
from ordinate.study.measure import measure
from ordinate.study.plan import Plan
from ordinate.study.reading import BYTES, prepare_text
from ordinate.study.source import Source, kind_of
from ordinate.task import Task
from ordinate.tasks.text import Text


class Reading(Source):
    """A text read from left to right."""

    nature = "goes on with a text"

    @classmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """The plan's length, and bytes."""
        kind_of(plan.task)
        return plan.length, BYTES

    @classmethod
    def taken_from(cls, plan: Plan, shape: Shape) -> dict[str, Any]:
        """Its tokenizer is there."""
        need_tokenizer(plan, shape)
        return {}

    def prepare(self, tell: Callable[[str], None]) -> None:
        """Cut the text into tokens."""
        prepare_text(self.plan, self.data, tell)

    @property
    def task(self) -> Task:
        """Windows of the text."""
        return self._windows(aside=False)

    @property
    def aside(self) -> Task:
        """Windows of its end."""
        return self._windows(aside=True)

    @property
    def identity(self) -> dict[str, dict[str, Any]]:
        """The text."""
        return {"text": open_store(self.data).identity}

    def measure(self, model: Model) -> dict[str, Any]:
        """Measure on text that was held out."""
        return measure(cast(Decoder, model), open_store(self.data), self.plan)

    def save(self, folder: Path) -> None:
        """The tokenizer."""
        open_store(self.data).tokenizer.save(folder)

    def _windows(self, *, aside: bool) -> Text:
        store = open_store(self.data)
        tokens = part(store.train, self.plan, aside=aside)
        return Text(tokens=tokens, vocabulary=store.tokenizer.size, length=self.plan.length)
