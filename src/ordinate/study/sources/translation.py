"""Pairs of sentences, one of which is to be said when the other is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ordinate import catalog
from ordinate.data.pairs import SIDES, PairStore, open_pairs, prepare_pairs
from ordinate.data.sentences import find_sentences
from ordinate.data.store import Split
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.kinds import Model
from ordinate.study.aside import places
from ordinate.study.plan import Plan
from ordinate.study.reading import BYTES
from ordinate.study.source import Sizes, Source, kind_of
from ordinate.study.translations import measure_translations
from ordinate.tasks.translation import SIGNS, Translation
from ordinate.tokenizer import make_tokenizer


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

    def prepare(self, tell: Callable[[str], None]) -> None:
        """Cut both sides of the pairs into tokens."""
        tell(f"the pairs: {self.plan.pairs}")
        sentences = find_sentences(self.plan.pairs)
        store = prepare_pairs(sentences, self.data, make_tokenizer(*catalog.parse(self.plan.tokenizer)))
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
        return Translation(sources=sources, targets=targets, tokens=store.tokenizer.size, length=self.plan.length)
