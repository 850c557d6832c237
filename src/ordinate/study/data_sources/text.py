"""Data source for next-token prediction on text (causal language modelling)."""

from pathlib import Path
from typing import Any, cast

from ordinate.core.progress import OnProgress
from ordinate.data.task import Task
from ordinate.data.tasks.text import Text
from ordinate.data.token_store import open_store
from ordinate.evaluation.quantity import BITS_PER_BYTE
from ordinate.evaluation.text import evaluate_text
from ordinate.models.decoder import Decoder
from ordinate.models.registry import Model
from ordinate.models.shape import Shape
from ordinate.study.data_source import DataSource, task_class
from ordinate.study.initial_model import fitting_base_tokenizer
from ordinate.study.plan import Plan
from ordinate.study.prepare_text import BYTE_VOCABULARY, prepare_text
from ordinate.study.tuning_split import split_tokens


class TextSource(DataSource):
    """Text, predicted from left to right by a decoder."""

    summary = "predicts the next token of a text"
    quantity = BITS_PER_BYTE

    @classmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """Return the plan's length, and the size of a byte vocabulary."""
        task_class(plan.task)
        return plan.length, BYTE_VOCABULARY

    @classmethod
    def fields_of_base(cls, plan: Plan, shape: Shape) -> dict[str, Any]:
        """Check that the model has its tokenizer."""
        fitting_base_tokenizer(plan, shape)
        return {}

    def prepare(self, on_progress: OnProgress) -> None:
        """Tokenise the text."""
        prepare_text(self.plan, self.data, on_progress, bytes_known=True)

    @property
    def task(self) -> Task:
        """Sequences of the training text, without the tuning split."""
        return self._windows(tuning=False)

    @property
    def tuning_task(self) -> Task:
        """Sequences of the tuning split."""
        return self._windows(tuning=True)

    @property
    def identity(self) -> dict[str, dict[str, Any]]:
        """Identity of the text."""
        return {"text": open_store(self.data).identity}

    def measure(self, model: Model) -> dict[str, Any]:
        """Evaluate on held-out text."""
        return evaluate_text(cast(Decoder, model), open_store(self.data), self.plan)

    def save(self, folder: Path) -> None:
        """Save the tokenizer."""
        open_store(self.data).tokenizer.save(folder)

    def _windows(self, *, tuning: bool) -> Text:
        store = open_store(self.data)
        tokens = split_tokens(store.train, self.plan, tuning=tuning)
        return Text(tokens=tokens, vocabulary=store.tokenizer.size, length=self.plan.length)
