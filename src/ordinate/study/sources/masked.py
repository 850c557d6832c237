"""A text, some of whose tokens are hidden and to be said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ordinate.checks import need
from ordinate.data.store import open_store
from ordinate.models.encoder import EncoderShape
from ordinate.models.kinds import Model
from ordinate.models.shape import Shape
from ordinate.study.aside import part
from ordinate.study.beginning import base_shape, need_tokenizer
from ordinate.study.hidden import measure_hidden
from ordinate.study.plan import Plan
from ordinate.study.reading import BYTES, prepare_text
from ordinate.study.source import Source, kind_of
from ordinate.tasks.masked import Masked


class Hiding(Source):
    """A text read from both sides."""

    nature = "says hidden tokens of a text"

    @classmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """The plan's length; bytes and the mask."""
        kind_of(plan.task)
        return plan.length, BYTES + 1

    @classmethod
    def taken_from(cls, plan: Plan, shape: Shape) -> dict[str, Any]:
        """Its tokenizer is there, a mask is among its tokens, and it says what is hidden."""
        head = cast(EncoderShape, shape).top
        need(head == "masked", "an encoder that says hidden tokens has a masked head", f"got {head}", "give another")
        tokenizer = need_tokenizer(plan, shape)
        need(
            tokenizer.mask is not None or tokenizer.size < shape.vocabulary,
            "a token of the model stands for hidden ones",
            "its tokenizer has none, and it knows no other",
            "give another",
        )
        return {}

    def prepare(self, tell: Callable[[str], None]) -> None:
        """Cut the text into tokens."""
        prepare_text(self.plan, self.data, tell)

    @property
    def task(self) -> Masked:
        """Windows of the text."""
        return self._windows(aside=False)

    @property
    def aside(self) -> Masked:
        """Windows of its end."""
        return self._windows(aside=True)

    @property
    def identity(self) -> dict[str, dict[str, Any]]:
        """The text."""
        return {"text": open_store(self.data).identity}

    def measure(self, model: Model) -> dict[str, Any]:
        """Measure on text that was held out."""
        return measure_hidden(model, open_store(self.data), self.task, self.plan)

    def save(self, folder: Path) -> None:
        """The tokenizer."""
        open_store(self.data).tokenizer.save(folder)

    def _windows(self, *, aside: bool) -> Masked:
        store, (_, options) = open_store(self.data), kind_of(self.plan.task)
        # a published tokenizer has a mask among its own; ours stands behind all tokens
        mask = store.tokenizer.size if store.tokenizer.mask is None else store.tokenizer.mask
        known = max(store.tokenizer.size, mask + 1) if self.plan.base is None else base_shape(self.plan).vocabulary
        sizes = {"vocabulary": known, "length": self.plan.length, "mask": mask}
        return Masked(tokens=part(store.train, self.plan, aside=aside), **sizes | options)
