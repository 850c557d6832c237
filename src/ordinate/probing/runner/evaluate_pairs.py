"""Evaluate encoder-decoders on sentence pairs: the Python twin of `ordinate evaluate --pairs`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from ordinate.core.checks import need, need_positive
from ordinate.core.progress import OnProgress, Progress, for_item, ignore, subrange
from ordinate.data.sentence_pair_sources import SentencePair, resolve_parallel_corpus
from ordinate.data.sentence_pair_store import SIDES, PairStore, open_pairs
from ordinate.data.tasks.translation import Line, SpecialTokens, Translation
from ordinate.data.tokenizer import FILE, Tokenizer, load_tokenizer
from ordinate.evaluation.lengths import Lengths
from ordinate.evaluation.outcome import Evaluation
from ordinate.evaluation.quantity import BITS_PER_BYTE
from ordinate.evaluation.side_by_side import MeasuredModel, differences_of
from ordinate.evaluation.translation import choose_pairs, loss_at
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.pretrained.read_model import read_model
from ordinate.probing.instrumentation.trained_length import Training, distinct_names, shared_study, training_of

DEFAULT_SAMPLES = 256
DEFAULT_MULTIPLES = (1, 2)


def evaluate_pairs(
    *folders: str | Path,
    pairs: str | None = None,
    lengths: Sequence[int] | None = None,
    trained_length: int | None = None,
    samples: int | None = None,
    on_progress: OnProgress = ignore,
) -> Evaluation:
    """Evaluate encoder-decoders on the targets of sentence pairs, one at a time and several concatenated.

    Args:
        folders: folders of Ordinate models, or of published ones that `ordinate.load` reads (T5, Marian).
        pairs: `docstrings`, `gettext:LANGUAGE`, or a file or folder of pairs; None: the held-out pairs of the study
            that trained the models.
        lengths: how many pairs are concatenated; None: as in the study, or 1 2.
        trained_length: most tokens of a source and of a target in training; None: as the study or config.json of the
            model says.
        samples: largest number of pairs; None: as many as the study took, or 256.
        on_progress: receives the fraction done.

    Raises:
        ValueError: a folder without such a model or its tokenizer, or too few pairs.
    """
    need(bool(folders), "an evaluation needs a model", "got none", "give the folder of one")
    names, trainings = distinct_names(folders), [training_of(None, Path(folder)) for folder in folders]
    study = shared_study(trainings)
    plan = study.plan if study is not None and study.plan is not None and pairs in (None, study.plan.pairs) else None
    need(plan is not None or pairs is not None, "the pairs must be named", "got none", "give --pairs")
    usual = (DEFAULT_MULTIPLES, DEFAULT_SAMPLES) if plan is None else (plan.eval_length_multiples, plan.eval_samples)
    asked, samples = Lengths(tuple(lengths or sorted(usual[0]))), usual[1] if samples is None else samples
    need_positive("samples", samples)
    data = _Pairs.of_study(study) if plan and study else _Pairs.of_text(str(pairs))
    measured, chosen = [], []
    for place, (folder, name, training) in enumerate(zip(folders, names, trainings, strict=True)):
        if trained_length is not None:
            training = replace(training, length=trained_length, source="as given")
        share = for_item(subrange(on_progress, place / len(names), (place + 1) / len(names)), data.name)
        one, groups = _measure((Path(folder), name, training), data, asked, samples, share)
        measured.append(one)
        chosen.append(groups)
    on_progress(Progress(item=data.name, stage="measured", done=1.0, total=1.0))
    same = all(groups == chosen[0] for groups in chosen)
    notes = ["At 2x and more that many pairs are concatenated."]
    notes += [] if same else ["The models are not compared: their tokenizers leave out different pairs."]
    notes += [] if plan else ["Whether the pairs were in the training data is not known."]
    units = "pairs" if max(asked.given) == 1 else f"groups of {max(asked.given)} pairs"
    results = tuple(one.result for one in measured)
    return Evaluation(
        data.name, units, len(chosen[0]), results, differences_of(measured) if same else (), tuple(notes)
    )


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs as texts, or those that a study has held out as tokens.

    Args:
        name: their name.
        store: the prepared pairs of a study; None: texts.
        texts: sources and targets.
    """

    name: str
    store: PairStore | None = None
    texts: Sequence[SentencePair] = ()

    @classmethod
    def of_study(cls, study: Training) -> "_Pairs":
        """Return the held-out pairs of a study."""
        store = open_pairs(cast(Path, study.data))
        return cls(f"held-out pairs of {store.manifest['name']}", store)

    @classmethod
    def of_text(cls, pairs: str) -> "_Pairs":
        """Return the pairs of a corpus by name or path."""
        corpus = resolve_parallel_corpus(pairs)
        return cls(corpus.name, None, [pair for pair in corpus.pairs() if pair.source and pair.target])

    def tokens(self, tokenizer: Tokenizer) -> tuple[Sequence[Line], Sequence[Line]]:
        """Return the tokens of sources and targets."""
        if self.store is not None:
            return self.store.sequences("validation", SIDES[0]), self.store.sequences("validation", SIDES[1])
        sides = [pair.source for pair in self.texts], [pair.target for pair in self.texts]
        sources, targets = ([np.asarray(tokenizer.encode_plain(text), np.int64) for text in side] for side in sides)
        return sources, targets


def _measure(
    of: tuple[Path, str, Training], data: _Pairs, asked: Lengths, samples: int, on_progress: OnProgress
) -> tuple[MeasuredModel, list[list[int]]]:
    """Evaluate one model; return also the pairs that were chosen."""
    folder, name, training = of
    model = cast(EncoderDecoder, read_model(folder, "encoder-decoder")).eval()
    need((folder / FILE).is_file(), f"a model needs its {FILE}", f"{folder} has none", "add it")
    must, length = "pairs are chosen by the trained length", training.length or 0
    need(length > 0, must, f"{name} does not record it", "give --trained-length")
    tokenizer, shape = load_tokenizer(folder), model.shape
    # encoding an empty text yields the special tokens that the tokenizer adds to every text
    signs = SpecialTokens(
        shape.start_token, shape.end_token, end_source=tokenizer.encode("").tolist() == [shape.end_token]
    )
    sources, targets = data.tokens(tokenizer)
    sizes = {"tokens": tokenizer.size, "length": length, "special_tokens": signs}
    task, rows = Translation(sources=sources, targets=targets, **sizes), []
    groups = choose_pairs(task, max(asked.given), samples)
    for place, times in enumerate(asked.given):
        rows.append(loss_at(model, task, tokenizer, training.precision, (times, groups)))
        on_progress(Progress(stage="measuring", done=(place + 1) / len(asked.given), total=1.0))
    return MeasuredModel(name, BITS_PER_BYTE, rows, length, training.source), groups
