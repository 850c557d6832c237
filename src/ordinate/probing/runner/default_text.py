"""The text that a model reads by default: that of its training as far as it is known, or English prose."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ordinate.data.resolve_corpus import resolve_corpus
from ordinate.probing._adapter import ModelAdapter
from ordinate.probing.instrumentation.ordinate_layout import ORDINATE_MODELS
from ordinate.probing.instrumentation.trained_length import training_of

STUDY_DEFAULT, PROSE = "stdlib", "docs"


@dataclass(frozen=True)
class DefaultText:
    """A text, and why it is taken.

    Args:
        text: a corpus by name, or a path.
        reason: why, as a clause for the report.
    """

    text: str
    reason: str


def common_text(models: Sequence[ModelAdapter]) -> str:
    """Choose the corpus that several models read if none is given and no study tells its own.

    Python's standard library, the default text of studies, if one of them is a model of Ordinate's, otherwise English
    prose, Python's documentation.
    """
    ours = any(isinstance(adapter.model, ORDINATE_MODELS) for adapter in models)
    return STUDY_DEFAULT if ours else PROSE


def default_text(subject: ModelAdapter, folder: Path | None = None) -> DefaultText:
    """Choose the text that a model reads if none is given.

    1. A model in the folder of its study: the text of that study, if it is still there.
    2. Another model of Ordinate's: Python's standard library, the default text of studies.
    3. Any other model: English prose, Python's documentation. Its files do not tell what it was trained on; most
       published models were trained on English prose, and those of code on both.

    Args:
        subject: the model.
        folder: its folder; None: it has none.
    """
    plan = training_of(subject.model, folder).plan if folder is not None else None
    if plan is not None:
        try:
            resolve_corpus(plan.text)
            return DefaultText(plan.text, "the text of its study")
        except (ValueError, OSError):
            # moved or deleted since
            return DefaultText(STUDY_DEFAULT, f"the default text of studies; that of its own, {plan.text}, is gone")
    if isinstance(subject.model, ORDINATE_MODELS):
        return DefaultText(STUDY_DEFAULT, "Python source, the default text of studies")
    return DefaultText(PROSE, "English prose, the default for models that were not trained by a study")
