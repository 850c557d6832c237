"""Data source for translation of sentence pairs."""

from pathlib import Path
from typing import Any, cast

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.core.progress import OnProgress, Progress
from ordinate.data.sentence_pair_sources import resolve_parallel_corpus
from ordinate.data.sentence_pair_store import SIDES, PairStore, open_pairs, prepare_pairs
from ordinate.data.tasks.translation import SPECIAL_TOKEN_COUNT, SpecialTokens, Translation
from ordinate.data.token_store import Split
from ordinate.data.tokenizer import Tokenizer, make_tokenizer
from ordinate.evaluation.quantity import BITS_PER_BYTE
from ordinate.evaluation.translation import evaluate_translation
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.registry import Model
from ordinate.models.shape import Shape
from ordinate.study.data_source import DataSizes, DataSource, task_class
from ordinate.study.initial_model import base_shape, base_tokenizer, fitting_base_tokenizer
from ordinate.study.plan import Plan
from ordinate.study.prepare_text import BYTE_VOCABULARY
from ordinate.study.tuning_split import need_examples, split_indices


class TranslationSource(DataSource):
    """Sentence pairs, translated by an encoder-decoder."""

    summary = "translates sentence pairs"
    quantity = BITS_PER_BYTE

    @classmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """Return the plan's length, and the size of a byte vocabulary with special tokens."""
        task_class(plan.task)
        return plan.length, BYTE_VOCABULARY + SPECIAL_TOKEN_COUNT

    @classmethod
    def sizes(cls, plan: Plan, vocabulary: int) -> DataSizes:
        """Add the start and end tokens."""
        end, start = vocabulary - SPECIAL_TOKEN_COUNT, vocabulary - SPECIAL_TOKEN_COUNT + 1
        fields = {"vocabulary": vocabulary, "start": start, "end": end, "padding": start}
        return DataSizes(fields, plan.length, plan.longest_length)

    @classmethod
    def fields_of_base(cls, plan: Plan, shape: Shape) -> dict[str, Any]:
        """Check that the model has its tokenizer, shared by source and target."""
        source_vocabulary = cast(EncoderDecoderShape, shape).source_vocabulary
        need(
            source_vocabulary is None,
            "source and target must share one tokenizer",
            "got a model with two vocabularies",
            "give another model",
        )
        fitting_base_tokenizer(plan, shape)
        return {}

    def prepare(self, on_progress: OnProgress) -> None:
        """Tokenise both sides of the pairs."""
        on_progress(Progress(stage="reading", message=f"reading the pairs: {self.plan.pairs}"))
        sentences = resolve_parallel_corpus(self.plan.pairs)
        if self.plan.base is None:
            store = prepare_pairs(sentences, self.data, make_tokenizer(*catalog.parse(self.plan.tokenizer)))
        else:
            store = prepare_pairs(sentences, self.data, base_tokenizer(self.plan), fitted=True)
        self.report_left_out(store.manifest, on_progress)
        if self.plan.tune_lr:
            need_examples(store.manifest["train_pairs"], "pairs", self.plan.pairs)
        # pairs that cannot be used are found now, not in the first run
        for split, tuning in (("train", False), ("train", True), ("validation", False)):
            if self.plan.tune_lr or not tuning:
                self._pairs(store, split, tuning=tuning)

    @property
    def task(self) -> Translation:
        """Training pairs, without the tuning split."""
        return self._pairs(open_pairs(self.data), "train")

    @property
    def tuning_task(self) -> Translation:
        """The tuning split: every tenth training pair."""
        return self._pairs(open_pairs(self.data), "train", tuning=True)

    @property
    def identity(self) -> dict[str, dict[str, Any]]:
        """Identity of the pairs."""
        return {"pairs": open_pairs(self.data).identity}

    def measure(self, model: Model) -> dict[str, Any]:
        """Evaluate on held-out pairs."""
        store = open_pairs(self.data)
        held = self._pairs(store, "validation")
        return evaluate_translation(cast(EncoderDecoder, model), held, store.tokenizer, self.plan)

    def save(self, folder: Path) -> None:
        """Save the tokenizer."""
        open_pairs(self.data).tokenizer.save(folder)

    def _pairs(self, store: PairStore, split: Split, *, tuning: bool = False) -> Translation:
        sources, targets = (store.sequences(split, side) for side in SIDES)
        if split == "train" and self.plan.tune_lr:
            kept = split_indices(len(sources), tuning=tuning)
            sources, targets = ([side[place] for place in kept] for side in (sources, targets))
        special_tokens = None if self.plan.base is None else _signs(self.plan, store.tokenizer)
        sizes = {"tokens": store.tokenizer.size, "length": self.plan.length, "special_tokens": special_tokens}
        return Translation(sources=sources, targets=targets, **sizes)


def _signs(plan: Plan, tokenizer: Tokenizer) -> SpecialTokens:
    """Special tokens of the trained model that a plan starts from."""
    shape = cast(EncoderDecoderShape, base_shape(plan))
    # encoding an empty text yields the special tokens that the tokenizer adds to every text
    return SpecialTokens(
        shape.start_token, shape.end_token, end_source=tokenizer.encode("").tolist() == [shape.end_token]
    )
