"""Data source for masked-token prediction on text."""

from pathlib import Path
from typing import Any, cast

from ordinate.core.checks import need
from ordinate.core.progress import OnProgress
from ordinate.data.tasks.masked import Masked
from ordinate.data.token_store import open_store
from ordinate.evaluation.masked import evaluate_masked
from ordinate.evaluation.quantity import BITS_PER_MASKED_TOKEN
from ordinate.models.encoder import EncoderShape
from ordinate.models.registry import Model
from ordinate.models.shape import Shape
from ordinate.study.data_source import DataSource, task_class
from ordinate.study.initial_model import base_shape, fitting_base_tokenizer
from ordinate.study.plan import Plan
from ordinate.study.prepare_text import BYTE_VOCABULARY, prepare_text
from ordinate.study.tuning_split import split_tokens


class MaskedTextSource(DataSource):
    """Text with masked tokens, predicted by a bidirectional encoder."""

    summary = "predicts masked tokens of a text"
    quantity = BITS_PER_MASKED_TOKEN

    @classmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """Return the plan's length, and the size of a byte vocabulary with a mask token."""
        task_class(plan.task)
        return plan.length, BYTE_VOCABULARY + 1

    @classmethod
    def fields_of_base(cls, plan: Plan, shape: Shape) -> dict[str, Any]:
        """Check that the model has a masked-token head, its tokenizer, and a mask token."""
        head = cast(EncoderShape, shape).head
        need(head == "masked", "the model must have a masked-token head", f"got {head}", "give another model")
        tokenizer = fitting_base_tokenizer(plan, shape)
        need(
            tokenizer.mask_token is not None or tokenizer.size < shape.vocabulary,
            "the model must have a mask token",
            "its tokenizer has none, and all its tokens belong to the tokenizer",
            "give another model",
        )
        return {}

    def prepare(self, on_progress: OnProgress) -> None:
        """Tokenise the text."""
        prepare_text(self.plan, self.data, on_progress, bytes_known=False)

    @property
    def task(self) -> Masked:
        """Sequences of the training text, without the tuning split."""
        return self._windows(tuning=False)

    @property
    def tuning_task(self) -> Masked:
        """Sequences of the tuning split."""
        return self._windows(tuning=True)

    @property
    def identity(self) -> dict[str, dict[str, Any]]:
        """Identity of the text."""
        return {"text": open_store(self.data).identity}

    def measure(self, model: Model) -> dict[str, Any]:
        """Evaluate on held-out text."""
        return evaluate_masked(model, open_store(self.data), self.task, self.plan)

    def save(self, folder: Path) -> None:
        """Save the tokenizer."""
        open_store(self.data).tokenizer.save(folder)

    def _windows(self, *, tuning: bool) -> Masked:
        store, (_, options) = open_store(self.data), task_class(self.plan.task)
        # published tokenizers have a mask token; for others it is added after the tokenizer's tokens
        mask = store.tokenizer.size if store.tokenizer.mask_token is None else store.tokenizer.mask_token
        known = max(store.tokenizer.size, mask + 1) if self.plan.base is None else base_shape(self.plan).vocabulary
        sizes = {"vocabulary": known, "length": self.plan.length, "mask": mask}
        return Masked(tokens=split_tokens(store.train, self.plan, tuning=tuning), **sizes | options)
