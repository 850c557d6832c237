"""Rules of generation: each against a loop over the tokens of a text, and all of them in their order."""

import math

import pytest
import torch

from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.next_token_rules import apply_rules, forbid_repeated_ngrams, penalize_repetition

WORDS = 5
NEVER = -math.inf


def drawn(length):
    generator = torch.Generator().manual_seed(length)
    return torch.randn(4, WORDS, generator=generator), torch.randint(WORDS, (4, length), generator=generator)


def ruled(scores, texts, last=False, **rules):
    shape = EncoderDecoderShape(vocabulary=WORDS, width=8, layers=1, heads=1, start=0, end=1, **rules)
    return apply_rules(shape, scores, texts, last=last)


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("penalty", [1.5, 0.5])
def test_a_token_of_the_text_is_penalized_once(penalty, length):
    scores, texts = drawn(length)
    expected = scores.clone()
    for row, text in enumerate(texts.tolist()):
        for token in set(text):
            expected[row, token] *= penalty if scores[row, token] < 0 else 1 / penalty
    torch.testing.assert_close(penalize_repetition(scores, texts, penalty), expected)


@pytest.mark.parametrize("length", [1, 2, 3, 9, 30])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_sequence_of_tokens_is_completed_a_second_time(size, length):
    scores, texts = drawn(length)
    found = forbid_repeated_ngrams(scores, texts, size)
    for row, text in enumerate(texts.tolist()):
        had = {tuple(text[place : place + size]) for place in range(length - size + 1)}
        for token in range(WORDS):
            repeats = (*text, token)[length + 1 - size :] in had if length + 1 >= size else False
            assert found[row, token] == (NEVER if repeats else scores[row, token])
    assert length < 9 or (found == NEVER).any()


def test_a_text_ends_at_its_least_length_at_the_earliest():
    for length in (1, 2, 3, 4):
        scores, texts = drawn(length)
        expected = scores.clone()
        expected[:, 1] = NEVER if length < 3 else scores[:, 1]
        assert torch.equal(ruled(scores, texts, min_length=3), expected)


def test_a_forced_token_has_probability_one():
    for length, last, forced in ((1, False, 4), (1, True, 1), (2, False, None), (2, True, 1)):
        scores, texts = drawn(length)
        found = ruled(scores, texts, last, first_token=4, force_end=True, min_length=9).softmax(-1)
        for token in range(WORDS):
            assert forced is None or (found[:, token] == float(token == forced)).all()
        assert forced is not None or (found[:, [0, 2, 3, 4]] < 1).all()


def test_rules_come_in_the_order_of_transformers():
    scores, texts = drawn(6)
    rules = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "suppress_tokens": (3,), "min_length": 8}
    expected = forbid_repeated_ngrams(penalize_repetition(scores, texts, 1.3), texts, 2)
    expected[:, [1, 3]] = NEVER
    assert torch.equal(ruled(scores, texts, **rules), expected)
    assert torch.equal(ruled(scores, texts, **rules, renormalize=True), expected.log_softmax(-1))


def test_without_rules_scores_are_left_as_they_are():
    scores, texts = drawn(6)
    assert torch.equal(ruled(scores, texts), scores)
