"""Evaluation of any language model: models whose losses are known, on documents of known size."""

import math

import numpy as np
import pytest
import tokenizers
import torch

from ordinate.core.progress import Progress
from ordinate.data.corpus import Corpus, Document
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.data.tokenizers.published import Published
from ordinate.evaluation.lengths import Lengths
from ordinate.evaluation.published import evaluate_text_models
from ordinate.evaluation.statistics import estimate_change, estimate_ratio
from ordinate.evaluation.subject import Subject
from ordinate.evaluation.text_sample import CorpusText


class Lines(Corpus):
    """Documents of words, of unequal length."""

    name = "lines"

    def __init__(self, counts):
        self.counts = counts

    def documents(self):
        for number, count in enumerate(self.counts):
            words = (f"w{(number * 7 + place) % 23}é" for place in range(count))
            yield Document(f"{number}.txt", 0, " ".join(words))

    def fingerprint(self):
        return str(self.counts)


class Sharp(torch.nn.Module):
    """Gives all tokens the same probability up to a position, and from there on less to every even token."""

    def __init__(self, vocabulary, good):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.vocabulary, self.good, self.seen = vocabulary, good, []

    def forward(self, ids):
        self.seen.append(ids)
        logits = torch.zeros(*ids.shape, self.vocabulary)
        logits[:, self.good :, ::2] = -3.0
        return logits + self.weight


def subject(name="sharp", *, good=10_000, tokenizer=None, vocabulary=256, **more):
    tokenizer = tokenizer or Bytes()
    facts = {"kind": "decoder", "trained_length": 16, **more}
    return Subject(name, facts.pop("kind"), Sharp(vocabulary, good), tokenizer, **facts)


LENGTHS = Lengths((1, 2, 4))


def evaluated(*subjects, counts=(40, 60, 90, 50, 70), lengths=LENGTHS, samples=9, **more):
    source = CorpusText(Lines(counts), [one.tokenizer for one in subjects])
    return evaluate_text_models(subjects, source, lengths, samples=samples, **more)


def test_the_same_bytes_are_predicted_at_every_length():
    found = evaluated(subject())
    (model,) = found.models
    assert [(one.times, one.length) for one in model.lengths] == [(1, 16), (2, 32), (4, 64)]
    # every byte costs 8 bits, at each length
    assert [one.value for one in model.lengths] == pytest.approx([8, 8, 8])
    assert [one.degradation for one in model.lengths] == pytest.approx([0, 0, 0], abs=1e-12)
    names, sizes = ([[one[key] for one in row["documents"]] for row in model.rows] for key in ("name", "bytes"))
    assert names[0] == names[1] == names[2]
    assert sizes[0] == sizes[1] == sizes[2]
    # whole pieces of 64 bytes, nine in all
    assert sum(sizes[0]) == 9 * 64
    assert found.count == 5


def test_a_loss_that_rises_beyond_the_trained_length_is_said_with_its_paired_interval():
    found = evaluated(subject(good=16))
    (model,) = found.models
    first, double, longest = model.lengths
    assert not first.is_worse
    assert double.is_worse
    assert longest.is_worse
    amounts, sizes = (
        [np.array([one[key] for one in row["documents"]], float) for row in model.rows] for key in ("nats", "bytes")
    )
    tables = [(own[None] / math.log(2), size) for own, size in zip(amounts, sizes, strict=True)]
    assert double.interval == estimate_ratio(*tables[1]).interval
    assert double.degradation_interval == estimate_change(tables[0], tables[1]).interval
    assert "sharp does not read beyond its trained length: at 2 times that length (32 tokens) it rises by" in str(
        found
    )
    assert "from 8.000 [8.000, 8.000] bits per byte at 16 tokens" in str(found)
    held = str(evaluated(subject(good=32)))
    assert held.startswith("sharp reads up to 2 times its trained length without a significant increase: 8.000")
    assert "At 4 times that length (64 tokens) it rises by" in held


def test_a_window_begins_with_the_first_token_of_the_model_and_has_the_exact_length():
    one = subject(first_token=7, max_length=32)
    (model,) = evaluated(one).models
    shapes = {ids.shape[1] for ids in one.model.seen}
    assert shapes == {16, 32}
    assert all((ids[:, 0] == 7).all() for ids in one.model.seen)
    (left,) = model.left_out
    assert (left.length, left.reason) == (64, "sharp has positions for at most 32 tokens")


def test_an_encoder_predicts_the_same_masked_tokens_at_every_length():
    one = subject(kind="encoder", first_token=1, last_token=2, mask_token=3, vocabulary=300)
    (model,) = evaluated(one).models
    assert model.unit == "bits per masked token"
    assert [row["documents"][0]["asked"] for row in model.rows] == [model.rows[0]["documents"][0]["asked"]] * 3
    assert [one.value for one in model.lengths] == pytest.approx([math.log2(300)] * 3)
    masked = []
    for ids in one.model.seen:
        assert (ids[:, 0] == 1).all()
        assert (ids[:, -1] == 2).all()
        masked.append((ids == 3).reshape(-1, 64))
    assert torch.equal(masked[0], masked[1])
    assert torch.equal(masked[0], masked[2])
    assert masked[0].sum() == sum(row["asked"] for row in model.rows[0]["documents"])


def test_models_with_other_tokenizers_are_compared_by_the_bytes_that_both_predict():
    texts = [document.text for document in Lines((60, 60)).documents()]
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    inner.train_from_iterator(texts, trainer)
    other = subject("pairs", tokenizer=Published(inner=inner), vocabulary=300)
    found = evaluated(subject("bytes"), other, counts=(300, 400, 350))
    one, two = found.models
    per_byte = [
        sum(d["nats"] for d in two.rows[0]["documents"]) / math.log(2),
        sum(d["bytes"] for d in two.rows[0]["documents"]),
    ]
    assert two.lengths[0].value == pytest.approx(per_byte[0] / per_byte[1])
    assert {(each.first, each.second, each.times) for each in found.differences} == {
        ("bytes", "pairs", n) for n in (1, 2, 4)
    }
    first = found.differences[0]
    assert first.difference == pytest.approx(one.lengths[0].value - two.lengths[0].value, abs=1e-12)
    sizes = [np.array([own["bytes"] for own in model.rows[0]["documents"]]) for model in (one, two)]
    pieces = found.models[0].rows[0]["documents"]
    # the same bytes, to within one token of each piece
    assert (np.abs(sizes[0] - sizes[1]) <= 12 * len(pieces)).all()
    assert first.significant
    assert first.interval[0] > 0
    assert str(found).startswith("At the trained length, pairs is best: ")
    same = evaluated(subject("one"), subject("two", good=16))
    assert [one.adjusted < 0.05 for one in same.differences] == [False, True, True]
    assert [one.difference < 0 for one in same.differences] == [False, True, True]


def test_bytes_of_published_tokens_are_those_of_the_text():
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[UNK]"], show_progress=False)
    inner.train_from_iterator(["café and cafés"], trainer)
    made, text = Published(inner=inner), "café and\n\n cafés"
    ids, ends = made.encode_with_ends(text)
    assert len(ids) == len(ends)
    assert ends[-1] == len(text.encode())
    assert (np.diff(ends) >= 0).all()
    assert made.unknown_token == inner.token_to_id("[UNK]")
    # what the tokenizer does not know is lost, so the bytes are not predicted
    lost = evaluated(subject(tokenizer=made, vocabulary=60), counts=(90, 80))
    assert lost.models[0].unit == "bits per token"
    assert "replaces some of the text by its unknown token" in lost.notes[0]


def test_lengths_without_enough_text_are_left_out_with_the_text_that_they_need():
    found = evaluated(subject(), counts=(40, 60, 9, 8), lengths=Lengths((1, 2, 4, 8, 32)))
    (model,) = found.models
    assert [one.times for one in model.lengths] == [1, 2, 4, 8]
    (left,) = model.left_out
    assert left.length == 512
    assert left.reason.startswith(
        "the text has no documents with 513 tokens; an interval needs 2, of about 0.5 kB each"
    )
    with pytest.raises(
        ValueError, match=r"2 documents must be long enough for the shortest length; of lines: .* give more"
    ):
        evaluated(subject(), counts=(2, 3))


def test_progress_reaches_the_end():
    events: list[Progress] = []
    evaluated(subject(), on_progress=events.append)
    shares = [event.done for event in events if event.stage == "measuring"]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert events[-1].stage == "measured"


def test_what_cannot_be_evaluated_is_an_error_in_words():
    for given, message in (
        ({"multiples": (1, 3, 4)}, "each length must be a multiple of the one before.* got 3 and 4"),
        ({"multiples": (0, 1)}, "length must be above zero"),
        ({"multiples": None, "tokens": (1,)}, "at least 2 tokens"),
        ({"multiples": (1,), "tokens": (8,)}, "multiples of the trained length, or tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            Lengths(**given)
    with pytest.raises(ValueError, match="sharp does not record it; give --trained-length"):
        evaluated(subject(trained_length=None))
    with pytest.raises(ValueError, match="sharp has no mask token"):
        evaluated(subject(kind="encoder"))
    # of [CLS] and [SEP] alone nothing can be masked: a special token must not be asked for in place of a word
    special = subject(kind="encoder", first_token=1, last_token=2, mask_token=3, vocabulary=300)
    with pytest.raises(ValueError, match=r"can be masked .*; sharp adds 2 to texts of 2 tokens in all; give longer"):
        evaluated(special, lengths=Lengths(None, (2, 16)))
    assert not special.model.seen
    assert len(evaluated(special, lengths=Lengths(None, (3, 15))).models[0].lengths) == 2
    with pytest.raises(
        ValueError, match="able to read some of the lengths; 16 tokens: sharp has positions for at most 8"
    ):
        evaluated(subject(max_length=8), lengths=Lengths((1,)))
    (model,) = evaluated(subject(trained_length=None), lengths=Lengths(None, (16, 32))).models
    assert [one.times for one in model.lengths] == [0, 0]
