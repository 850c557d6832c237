"""Evaluate language models by their folders: the Python twin of `ordinate evaluate`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from ordinate.core.checks import need, need_positive, need_whole
from ordinate.core.progress import OnProgress, Progress, ignore
from ordinate.data.heldout_split import held_out_documents
from ordinate.data.resolve_corpus import resolve_corpus
from ordinate.data.token_store import TokenStore, open_store
from ordinate.evaluation.lengths import Lengths
from ordinate.evaluation.outcome import Evaluation
from ordinate.evaluation.published import evaluate_text_models
from ordinate.evaluation.subject import Subject
from ordinate.evaluation.text_sample import CorpusText, HeldOutText, TextSource
from ordinate.probing._adapter import Inputs, ModelAdapter
from ordinate.probing._attach import attach
from ordinate.probing.instrumentation.trained_length import Training, distinct_names, training_of
from ordinate.probing.runner.default_text import common_text

DEFAULT_SAMPLES = 64
# what each other kind of model is evaluated on
OTHER_INPUTS = {
    "vision": "images: give them by images (--images)",
    "encoder-decoder": "pairs: give them by pairs (--pairs)",
    "cross-attention": "pairs: give its whole model by its folder, and pairs (--pairs)",
}


class AttachedModel(nn.Module):
    """A model behind an adapter, as a module that takes token ids and returns logits.

    Args:
        adapter: the adapter.
    """

    def __init__(self, adapter: ModelAdapter) -> None:
        super().__init__()
        self.adapter, self.model = adapter, adapter.model

    def train(self, mode: bool = True) -> "AttachedModel":
        """Leave the model in its mode: each pass of the adapter is in evaluation mode."""
        return self

    def forward(self, ids: Tensor) -> Tensor:
        logits = self.adapter.predict(Inputs(ids))
        need(
            logits is not None,
            "a model must predict tokens to be evaluated on a text",
            f"{self.adapter.info.name} has no head for that",
            "give a checkpoint with one; `ordinate classify` reads classifiers",
        )
        # need() has raised for None
        return logits if logits is not None else ids


def evaluate(
    *models: object,
    text: str | None = None,
    lengths: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    trained_length: int | None = None,
    samples: int | None = None,
    on_progress: OnProgress = ignore,
) -> Evaluation:
    """Evaluate language models on the same held-out text at several lengths.

    Decoders are measured in bits per byte, or per token if their tokenizer loses text; encoders in bits per masked
    token. Intervals are over documents, by `ordinate.evaluation.statistics`, as in the report of a study. Documents
    on which an Ordinate model was trained are left out if its study's folder tells which they are.

    Args:
        models: folders of Ordinate models or of transformers checkpoints, or adapters made by `attach`.
        text: a corpus by name, or a file or folder; None: the held-out text of the study that trained the models, or
            the standard library of Python for other Ordinate models, English prose for all others (`common_text`).
        lengths: multiples of the length that each model was trained with; None: 1 2 4 8, or `tokens`.
        tokens: lengths in tokens, in place of `lengths`.
        trained_length: tokens of the training sequences; None: as the study or config.json of the model says.
        samples: largest number of pieces of the longest length; None: as many as the study took, or 64.
        on_progress: receives the fraction done.

    Raises:
        ValueError: bad lengths; a model without tokenizer or trained length; too little text.
        NotApplicable: a model cannot be attached.
    """
    need(bool(models), "an evaluation needs a model", "got none", "give the folder of one")
    if trained_length is not None:
        need_whole("the trained length", trained_length)
        need_positive("the trained length", trained_length)
    asked = asked_lengths(lengths, tokens)
    found, adapters = [], []
    for model, name in zip(models, distinct_names(models), strict=True):
        on_progress(Progress(item=name, stage="attaching"))
        adapter = model if isinstance(model, ModelAdapter) else attach(model, name=name)
        folder = Path(model) if isinstance(model, str | Path) else None
        found.append(text_subject(adapter, name, folder, trained_length))
        adapters.append(adapter)
    chosen = TextChoice(text, common_text(adapters))
    return evaluate_subjects(found, chosen, asked, samples, on_progress)


@dataclass(frozen=True)
class TextChoice:
    """The text of an evaluation.

    Args:
        asked: a corpus by name, or a file or folder; None: none is asked for.
        otherwise: the corpus by name if none is asked for and the models have no study whose held-out text is there.
    """

    asked: str | None
    otherwise: str


def asked_lengths(lengths: Sequence[int] | None, tokens: Sequence[int] | None) -> Lengths:
    """Return the lengths that are asked for; arguments as in `evaluate`."""
    need(
        lengths is None or tokens is None,
        "lengths are multiples of the trained length, or tokens",
        f"got lengths {lengths} and tokens {tokens}",
        "give one of them",
    )
    return Lengths(None, tuple(tokens)) if tokens is not None else Lengths(tuple(lengths)) if lengths else Lengths()


def evaluate_subjects(
    found: Sequence[tuple[Subject, Training]],
    text: TextChoice,
    lengths: Lengths,
    samples: int | None,
    on_progress: OnProgress,
) -> Evaluation:
    """Evaluate models with what is known of their training; other arguments as in `evaluate`."""
    subjects, trainings = [subject for subject, _ in found], [training for _, training in found]
    source, note = _text(text, subjects, trainings)
    usual = [training.plan.eval_samples for training in trainings if training.plan is not None]
    samples = (max(usual) if usual else DEFAULT_SAMPLES) if samples is None else samples
    return evaluate_text_models(subjects, source, lengths, samples=samples, notes=[note], on_progress=on_progress)


def _text(text: TextChoice, subjects: Sequence[Subject], trainings: Sequence[Training]) -> tuple[TextSource, str]:
    """Return the text, and a sentence on whether the models know it from their training."""
    corpus = None if text.asked is None else resolve_corpus(text.asked)
    read = [corpus is None or training.has_read(corpus) for training in trainings]
    folders = {training.data for training in trainings}
    if all(read) and len(folders) == 1 and (store := _store(trainings[0].data)):
        return HeldOutText(store, len(subjects)), "These are the held-out documents on which its study evaluates."
    corpus = corpus or resolve_corpus(text.otherwise)
    read = [training.has_read(corpus) for training in trainings]
    tokenizers = [subject.tokenizer for subject in subjects]
    if not any(read):
        return CorpusText(corpus, tokenizers), "Whether the text was in the training data is not known."
    known = "" if all(read) else " Whether the others were trained on it is not known."
    chosen = held_out_documents(corpus)
    return CorpusText(corpus, tokenizers, chosen), f"Only documents that the study held out are read.{known}"


def _store(folder: Path | None) -> TokenStore | None:
    """Open the prepared text of a study; None if it is not there."""
    try:
        return None if folder is None else open_store(folder)
    except (OSError, ValueError):
        return None


def text_subject(
    adapter: ModelAdapter, name: str, folder: Path | None, trained_length: int | None = None
) -> tuple[Subject, Training]:
    """Return a model of texts as it is evaluated, and what is known of its training.

    Args:
        adapter: the model.
        name: its name.
        folder: its folder; None: it has none.
        trained_length: tokens of the training sequences; None: as its study or config.json says.

    Raises:
        ValueError: a model of images or pairs, or one without a tokenizer.
    """
    facts = adapter.info
    need(
        facts.kind not in OTHER_INPUTS,
        "a text evaluates decoders and encoders",
        f"{facts.name} takes {OTHER_INPUTS.get(facts.kind, '')}",
        "give another model",
    )
    training = training_of(adapter.model, folder)
    if trained_length is not None:
        training = replace(training, length=trained_length, source="as given")
    elif training.length is not None and training.length > (facts.max_length or training.length):
        # RoBERTa's configuration counts rows of its table that no token can have
        training = replace(training, length=facts.max_length, source="its table of positions")
    tokenizer = adapter.tokenizer
    if tokenizer is None:
        raise ValueError(
            f"a model needs its tokenizer to read a text; {facts.name} has none; give its folder, with tokenizer.json"
        )
    return (
        Subject(
            name=name,
            kind="encoder" if facts.kind == "encoder" else "decoder",
            model=AttachedModel(adapter),
            tokenizer=tokenizer,
            first_token=facts.first_token,
            last_token=tokenizer.suffix_token if facts.kind == "encoder" else None,
            mask_token=facts.mask_token,
            max_length=facts.max_length,
            trained_length=training.length,
            trained_length_source=training.source,
            precision=training.precision,
        ),
        training,
    )
