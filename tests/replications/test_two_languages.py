from dataclasses import replace

import numpy as np
import pytest
import torch

from ordinate.core.geometry import Geometry
from ordinate.models.encoder import EncoderShape
from ordinate.replications import two_languages
from ordinate.replications.two_languages import (
    MASK,
    OTHER,
    PIECE,
    SPACE,
    SYMBOLS,
    TOKENS,
    VOCABULARY,
    Bilingual,
    BilingualArm,
    TwoLanguages,
    heldout,
    is_second,
    symbols,
    training_text,
    translated,
    word_starts,
)

SHAPE = EncoderShape(
    vocabulary=VOCABULARY, width=16, layers=1, heads=2, scheme="learned", max_length=2 * TOKENS, embedding_std=0.5
)


@pytest.fixture
def texts():
    return torch.randint(SYMBOLS, (16, TOKENS), generator=torch.Generator().manual_seed(0))


def made(offsets, **options):
    torch.manual_seed(0)
    return Bilingual(replace(SHAPE, **options), offsets)


def placed(model, ids, later):
    """Hidden states with positions given."""
    pos = (torch.arange(TOKENS) + TOKENS * later)[None, :, None]
    return model(ids, Geometry.from_positions(pos, causal=False))


def test_letters_have_no_case_and_other_bytes_one_symbol():
    assert symbols(np.frombuffer(b"aZ z\n.\xff", np.uint8)).tolist() == [0, 25, SPACE, 25, OTHER, OTHER, OTHER]


def test_a_word_starts_at_a_letter_after_a_space():
    row = torch.tensor([3, SPACE, 4, 5, OTHER, 6, SPACE, SPACE, 0])
    assert word_starts(row).nonzero()[:, 0].tolist() == [2, 8]


def test_the_language_of_a_text_is_that_of_most_of_its_symbols_and_masks_do_not_count():
    rows = torch.tensor([[0, 1, SYMBOLS, MASK, MASK], [SYMBOLS, 2 * SYMBOLS - 1, 0, MASK, MASK], [0, 1, 2, 3, MASK]])
    assert is_second(rows).tolist() == [False, True, False]
    assert is_second(translated(rows[2:, :4])).tolist() == [True]


def test_positions_are_shared_or_those_of_the_language(texts):
    model = made("none").eval()
    torch.testing.assert_close(model(translated(texts)), placed(model, translated(texts), later=0))
    model = made("by language").eval()
    torch.testing.assert_close(model(texts), placed(model, texts, later=0))
    torch.testing.assert_close(model(translated(texts)), placed(model, translated(texts), later=1))
    # in one batch each text has those of its own language
    both = model(torch.cat([texts, translated(texts)]))
    torch.testing.assert_close(both, torch.cat([model(texts), model(translated(texts))]))


def test_offsets_by_chance_are_those_of_half_of_the_texts_in_training_and_of_none_in_evaluation(texts):
    model = made("by chance")
    near, far = (placed(model, texts, later) for later in (0, 1))
    later = torch.cat([(model(texts) - far).abs().amax((1, 2)) < 1e-5 for _ in range(20)])
    assert 0.4 < float(later.double().mean()) < 0.6
    found = model(texts)
    assert all(torch.allclose(row, a, atol=1e-5) or torch.allclose(row, b, atol=1e-5)
               for row, a, b in zip(found, near, far, strict=True))  # fmt: skip
    torch.testing.assert_close(model.eval()(texts), near)


def test_a_token_type_is_that_of_the_language(texts):
    model = made("none", token_types=2).eval()
    for ids, kind in ((texts, 0), (translated(texts), 1)):
        given = model(ids, token_types=torch.full_like(ids, kind))
        torch.testing.assert_close(model(ids), given)
        other = model(ids, token_types=torch.full_like(ids, 1 - kind))
        assert float((other - given).detach().abs().max()) > 1e-3


def test_an_arm_builds_its_model_and_says_its_offsets_in_the_plan():
    arm = BilingualArm("own", SHAPE, 1, 1, 1e-3, offsets="by language")
    assert arm.build().offsets == "by language"
    assert arm.plan["offsets"] == "by language"


def test_the_languages_read_alternate_pieces_of_the_prose():
    text = training_text()
    one, other = text[: len(text) // 2], text[len(text) // 2 :]
    assert one.max() < SYMBOLS <= other.min()
    assert not np.array_equal(one[:PIECE], other[:PIECE] - SYMBOLS)


def test_texts_begin_with_a_word_half_of_them_in_each_language():
    task = TwoLanguages()
    batch = task.sample(torch.Generator().manual_seed(0), 512)
    kept = torch.where(batch.targets >= 0, batch.targets, batch.inputs)
    assert kept.shape == (512, TOKENS)
    assert 0.4 < float(is_second(kept).double().mean()) < 0.6
    assert (kept[:, 0] % SYMBOLS < SPACE).all()


def test_no_text_is_in_both_languages_or_beyond_the_end(monkeypatch):
    words = symbols(np.frombuffer(b" a" * TOKENS, np.uint8))
    monkeypatch.setattr(two_languages, "training_text", lambda: np.concatenate([words, words + SYMBOLS]))
    # the last text that fits into each language is there
    assert TwoLanguages().starts.tolist() == [1, 3, 5, 7, 17, 19, 21, 23]


def test_heldout_texts_differ_begin_with_a_word_and_are_the_same_in_each_call():
    texts = heldout(256)
    assert (texts[:, 0] < SPACE).all()
    assert len(texts.unique(dim=0)) == len(texts) > 128
    assert torch.equal(texts, heldout(256))
    assert not torch.equal(texts, texts.unique(dim=0))
