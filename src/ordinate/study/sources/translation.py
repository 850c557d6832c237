"""Pairs of sentences, one of which is to be said when the other is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ordinate import catalog
from ordinate.checks import need
from ordinate.data.pairs import SIDES, PairStore, open_pairs, prepare_pairs
from ordinate.data.sentences import find_sentences
from ordinate.data.store import Split
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.kinds import Model
from ordinate.models.shape import Shape
from ordinate.study.aside import places
from ordinate.study.beginning import base_shape, base_tokenizer, need_tokenizer
from ordinate.study.plan import Plan
from ordinate.study.reading import BYTES
from ordinate.study.source import Sizes, Source, kind_of
from ordinate.study.translations import measure_translations
from ordinate.tasks.translation import SIGNS, Signs, Translation
from ordinate.tokenizer import Tokenizer, make_tokenizer


class Pairs(Source):
    """Sentences and their translations."""

    nature = "learns pairs of sentences"

    @classmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """The plan's length; bytes and the signs."""
        kind_of(plan.task)
        return plan.length, BYTES + SIGNS

    @classmethod
    def sizes(cls, plan: Plan, vocabulary: int) -> Sizes:
        """Its signs too."""
        end, start = vocabulary - SIGNS, vocabulary - SIGNS + 1
        signs = {"vocabulary": vocabulary, "start": start, "end": end, "padding": start}
        return Sizes(signs, plan.length, plan.longest)

    @classmethod
    def taken_from(cls, plan: Plan, shape: Shape) -> dict[str, Any]:
        """Its tokenizer is there, and serves both sides."""
        apart = cast(EncoderDecoderShape, shape).source_vocabulary
        need(apart is None, "one tokenizer cuts both sides", "got a model with two tables of tokens", "give another")
        need_tokenizer(plan, shape)
        return {}

    def prepare(self, tell: Callable[[str], None]) -> None:
        """Cut both sides of the pairs into tokens."""
        tell(f"the pairs: {self.plan.pairs}")
        sentences = find_sentences(self.plan.pairs)
        if self.plan.base is None:
            store = prepare_pairs(sentences, self.data, make_tokenizer(*catalog.parse(self.plan.tokenizer)))
        else:
            store = prepare_pairs(sentences, self.data, base_tokenizer(self.plan), fitted=True)
        for split in ("train", "validation"):
            self._pairs(store, split)

    @property
    def task(self) -> Translation:
        """The pairs to learn from."""
        return self._pairs(open_pairs(self.data), "train")

    @property
    def aside(self) -> Translation:
        """Every tenth of them."""
        return self._pairs(open_pairs(self.data), "train", aside=True)

    @property
    def identity(self) -> dict[str, dict[str, Any]]:
        """The pairs."""
        return {"pairs": open_pairs(self.data).identity}

    def measure(self, model: Model) -> dict[str, Any]:
        """Measure on pairs that were held out."""
        store = open_pairs(self.data)
        held = self._pairs(store, "validation")
        return measure_translations(cast(EncoderDecoder, model), held, store.tokenizer, self.plan)

    def save(self, folder: Path) -> None:
        """The tokenizer."""
        open_pairs(self.data).tokenizer.save(folder)

    def _pairs(self, store: PairStore, split: Split, *, aside: bool = False) -> Translation:
        sources, targets = (store.lines(split, side) for side in SIDES)
        if split == "train" and self.plan.tune:
            kept = places(len(sources), aside=aside)
            sources, targets = ([side[place] for place in kept] for side in (sources, targets))
        signs = None if self.plan.base is None else _signs(self.plan, store.tokenizer)
        sizes = {"tokens": store.tokenizer.size, "length": self.plan.length, "signs": signs}
        return Translation(sources=sources, targets=targets, **sizes)


def _signs(plan: Plan, tokenizer: Tokenizer) -> Signs:
    """Those that the model of a plan is used to."""
    shape = cast(EncoderDecoderShape, base_shape(plan))
    # what a tokenizer makes of nothing is what it puts around a text
    return Signs(shape.start, shape.end, closes=tokenizer.encode("").tolist() == [shape.end])
