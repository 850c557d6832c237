"""Rules of generation: against loops over the tokens of each text, in the order of transformers."""

import math
import random
from dataclasses import replace

import pytest
import torch

from ordinate import Cache, Decoder, Shape, generate
from ordinate.models.next_token_rules import NO_RULES, NextTokenRules
from ordinate.models.prompt import Prompt
from ordinate.models.score_changes import NO_TOKEN, forbid_ngrams, normalise, penalize_repetition

WORDS, NEVER = 5, -math.inf
SIZES = {"vocabulary": 13, "width": 16, "layers": 1, "heads": 2}
PROMPT = Prompt.from_lists([[3, 1, 4, 1], [5], [9, 2]])


def drawn(length):
    generator = torch.Generator().manual_seed(length)
    return torch.randn(4, WORDS, generator=generator), torch.randint(WORDS, (4, length), generator=generator)


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
    found = forbid_ngrams(scores, texts, size, texts)
    for row, text in enumerate(texts.tolist()):
        had = {tuple(text[place : place + size]) for place in range(length - size + 1)}
        for token in range(WORDS):
            repeats = (*text, token)[length + 1 - size :] in had if length + 1 >= size else False
            assert found[row, token] == (NEVER if repeats else scores[row, token])
    assert length < 9 or (found == NEVER).any()


def test_tokens_of_a_source_outside_of_the_vocabulary_are_left_out():
    scores, texts = drawn(3)
    source = torch.tensor([[5, 99, 2, NO_TOKEN]]).expand(4, -1)
    inside = torch.full((4, 1), 2)
    assert torch.equal(penalize_repetition(scores, source, 2.0), penalize_repetition(scores, inside, 2.0))
    assert torch.equal(forbid_ngrams(scores, texts, 1, source), forbid_ngrams(scores, texts, 1, inside))


def test_a_row_without_a_token_left_stays_without_one():
    scores = torch.tensor([[NEVER, NEVER], [NEVER, 3.0], [math.nan, 1.0]])
    expected = torch.tensor([[NEVER, NEVER], [NEVER, 0.0], [math.nan, math.nan]])
    torch.testing.assert_close(normalise(scores), expected, equal_nan=True)


def scores_of_one_text(rules, scores, text, new, source, ends, last):
    """What `NextTokenRules.apply` computes, by loops over the tokens of one text without padding."""
    scores, words = list(scores), range(len(scores))

    def completes(token, sequence):
        return [*text, token][-len(sequence) :] == list(sequence)

    def penalized(penalty, tokens):
        return [
            x if token not in tokens else x * penalty if x < 0 else x / penalty
            for token, x in zip(words, scores, strict=True)
        ]

    def without(rule):
        return [NEVER if rule(token) else x for token, x in zip(words, scores, strict=True)]

    def had(size, where):
        return {tuple(where[place : place + size]) for place in range(len(where) - size + 1)} if size else set()

    scores = [
        x + sum(bias for sequence, bias in rules.sequence_bias if completes(token, sequence))
        for token, x in zip(words, scores, strict=True)
    ]
    scores = penalized(1 / rules.encoder_repetition_penalty, source)
    scores = penalized(rules.repetition_penalty, text)
    for size, where in ((rules.no_repeat_ngram_size, text), (rules.encoder_no_repeat_ngram_size, source)):
        ngrams = had(size, where)
        scores = without(lambda token, ngrams=ngrams: any(completes(token, ngram) for ngram in ngrams))
    banned = [word for word in rules.bad_words_ids if word not in [(end,) for end in ends]]
    scores = without(lambda token: any(completes(token, word) for word in banned))
    early = len(text) < rules.min_length if rules.min_new_tokens is None else new < rules.min_new_tokens
    scores = without(lambda token: early and token in ends)
    if rules.forced_bos_token_id is not None and len(text) == 1:
        scores = [0.0 if token == rules.forced_bos_token_id else NEVER for token in words]
    if rules.forced_eos_token_id and last:
        scores = [0.0 if token in rules.forced_eos_token_id else NEVER for token in words]
    start, factor = rules.exponential_decay_length_penalty or (math.inf, 1.0)
    if new > start:
        scores = [
            x + abs(x) * (factor ** (new - start) - 1) if token in ends and x != NEVER else x
            for token, x in zip(words, scores, strict=True)
        ]
    scores = without(lambda token: token in rules.suppress_tokens)
    begin = int(rules.forced_bos_token_id is not None and len(text) - new <= 1)
    scores = without(lambda token: new == begin and token in rules.begin_suppress_tokens)
    total = sum(map(math.exp, scores)) if rules.renormalize_logits else 1.0
    return [NEVER if x == NEVER else x - math.log(total) for x in scores]


def tokens(draw, most):
    return tuple(draw.randrange(WORDS) for _ in range(draw.randint(1, most)))


def sequences(draw):
    return tuple(sorted({tokens(draw, 3) for _ in range(draw.randint(1, 9))}))


RULES = {
    "sequence_bias": lambda draw: tuple((sequence, draw.choice((2.0, -1.5))) for sequence in sequences(draw)),
    "encoder_repetition_penalty": lambda draw: draw.choice((1.3, 0.6)),
    "repetition_penalty": lambda draw: draw.choice((1.3, 0.6)),
    "no_repeat_ngram_size": lambda draw: draw.randint(1, 3),
    "encoder_no_repeat_ngram_size": lambda draw: draw.randint(1, 3),
    "bad_words_ids": sequences,
    "min_length": lambda draw: draw.randint(1, 5),
    "min_new_tokens": lambda draw: draw.randint(0, 3),
    "forced_bos_token_id": lambda draw: 4,
    "forced_eos_token_id": lambda draw: draw.choice(((0,), (0, 3))),
    "exponential_decay_length_penalty": lambda draw: (draw.randint(0, 2), draw.choice((0.5, 1.0, 3.0))),
    "suppress_tokens": lambda draw: (draw.randint(1, 3),),
    "begin_suppress_tokens": lambda draw: tokens(draw, 3),
}


@pytest.mark.parametrize("seed", range(500))
def test_scores_are_those_of_loops_over_each_text(seed):
    draw = random.Random(seed)
    told = {name: RULES[name](draw) for name in draw.sample(sorted(RULES), draw.randint(1, 5))}
    prompts, new = [tokens(draw, 3) for _ in range(draw.randint(1, 3))], draw.randint(0, 4)
    renormalized, last = draw.random() < 0.5, draw.random() < 0.3
    rules = NextTokenRules(**told)
    rules = replace(rules, renormalize_logits=renormalized and rules.changes_probabilities)
    generator, source, ends = torch.Generator().manual_seed(seed), Prompt.from_lists(prompts).texts, (0, 3)
    scores = torch.randn(len(prompts), WORDS, generator=generator, dtype=torch.float64)
    written = torch.randint(WORDS, (len(prompts), new), generator=generator)
    texts = torch.cat([source, written], 1)
    found = rules.apply(scores, texts, prompt=source.shape[1], source=source, ends=ends, last=last)
    for row, prompt in enumerate(prompts):
        text = [*prompt, *written[row].tolist()]
        expected = scores_of_one_text(rules, scores[row].tolist(), text, new, prompt, ends, last)
        torch.testing.assert_close(found[row], torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_a_growth_beyond_all_numbers_leaves_an_end_token_alone_and_finite():
    rules = NextTokenRules(exponential_decay_length_penalty=(0, 3.0))
    texts = torch.zeros(1, 5000, dtype=torch.long)
    given = {"prompt": 1, "source": texts[:, :1], "ends": (1,), "last": False}
    found = rules.apply(torch.tensor([[2.0, -0.5, 1.0]]), texts, **given)
    assert found[0].isfinite().all()
    assert found.argmax() == 1
    assert torch.equal(found[0, [0, 2]], torch.tensor([2.0, 1.0]))


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above zero; got 0.0"),
        ({"encoder_repetition_penalty": -1.0}, "encoder_repetition_penalty must be above zero; got -1.0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must not be negative; got -1"),
        ({"encoder_no_repeat_ngram_size": -2}, "encoder_no_repeat_ngram_size must not be negative; got -2"),
        ({"min_length": -1}, "min_length must not be negative; got -1"),
        ({"min_new_tokens": -1}, "min_new_tokens must not be negative; got -1"),
        ({"bad_words_ids": ((1,), ())}, "bad_words_ids must have one token or more in each sequence; got an empty"),
        ({"sequence_bias": (((), 1.0),)}, "sequence_bias must have one token or more in each sequence; got an empty"),
        ({"sequence_bias": (((1,), NEVER),)}, "a bias of sequence_bias must be a finite number; got -inf"),
        (
            {"exponential_decay_length_penalty": (-1, 1.2)},
            "the start of exponential_decay_length_penalty must not be",
        ),
        (
            {"exponential_decay_length_penalty": (1, 0.0)},
            "the factor of exponential_decay_length_penalty must be abo",
        ),
        (
            {"forced_bos_token_id": 5, "suppress_tokens": (4, 5)},
            r"suppress_tokens must leave forced_bos_token_id and .*; got \(4, 5\); leave them out of suppress_tokens",
        ),
        (
            {"forced_eos_token_id": (4, 5), "suppress_tokens": (4, 5)},
            r"suppress_tokens must leave .* one of forced_eos_token_id; got \(4, 5\)",
        ),
        (
            {"renormalize_logits": True, "forced_bos_token_id": 4},
            "renormalize_logits has an effect only with another rule .*; got renormalize_logits=True .*; give one",
        ),
    ],
)
def test_rules_without_a_meaning_are_refused(told, match, untyped):
    with pytest.raises(ValueError, match=match):
        NextTokenRules(**told)


def test_lists_are_tuples(untyped):
    told = {"bad_words_ids": [[1], [2, 3]], "sequence_bias": [[[1, 2], 0.5]], "suppress_tokens": [4]}
    rules = NextTokenRules(**told)
    assert rules == NextTokenRules((((1, 2), 0.5),), bad_words_ids=((1,), (2, 3)), suppress_tokens=(4,))
    assert hash(rules)


def test_one_of_several_forced_tokens_may_be_suppressed():
    rules = NextTokenRules(forced_eos_token_id=(1, 2), suppress_tokens=(1,))
    texts = torch.zeros(1, 2, dtype=torch.long)
    found = rules.apply(torch.randn(1, 4), texts, prompt=1, source=texts, ends=(), last=True)
    assert found.tolist() == [[NEVER, NEVER, 0.0, NEVER]]


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ({"suppress_tokens": (1, 13)}, "tokens of suppress_tokens must lie in 0 to 12; got 13; take them from the"),
        ({"begin_suppress_tokens": (-1,)}, "tokens of begin_suppress_tokens must lie in 0 to 12; got -1"),
        ({"bad_words_ids": ((1, 2), (3, 40))}, "tokens of bad_words_ids must lie in 0 to 12; got 40"),
        ({"sequence_bias": (((40,), 1.0),)}, "tokens of sequence_bias must lie in 0 to 12; got 40"),
        ({"forced_bos_token_id": 13}, "tokens of forced_bos_token_id must lie in 0 to 12; got 13"),
        ({"forced_eos_token_id": (3, 13)}, "tokens of forced_eos_token_id must lie in 0 to 12; got 13"),
        (
            {"min_length": 2},
            "min_length needs an end token; got min_length=2 without one; give an end token, or leave",
        ),
        ({"min_new_tokens": 2}, "min_new_tokens needs an end token; got min_new_tokens=2 without one"),
        (
            {"exponential_decay_length_penalty": (1, 1.2)},
            r"exponential_decay_length_penalty needs an end token; got exponential_decay_length_penalty=\(1, 1.2\)",
        ),
    ],
)
def test_rules_that_do_not_fit_a_model_are_refused_at_once(told, match):
    with pytest.raises(ValueError, match=match):
        generate(Decoder(Shape(**SIZES)), PROMPT, 3, temperature=0, rules=NextTokenRules(**told))


def test_rules_need_the_whole_text():
    model, after = Decoder(Shape(**SIZES)), Cache()
    prompt = Prompt.from_lists([[3, 1]], prefix=after)
    rules = NextTokenRules(repetition_penalty=1.2)
    # nothing is in the cache yet
    assert list(generate(model, prompt, 1, temperature=0, rules=rules))
    with torch.inference_mode():
        model(torch.tensor([[5, 6]]), cache=after)
    assert list(generate(model, prompt, 1, temperature=0, rules=NO_RULES))
    with pytest.raises(
        ValueError, match="need the whole text; got repetition_penalty after a cached prefix; give the"
    ):
        generate(model, prompt, 1, temperature=0, rules=rules)


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_text_that_may_have_no_token_is_refused_unless_it_has_ended(temperature):
    model = Decoder(Shape(**SIZES)).eval()
    told = {"temperature": temperature, "generator": torch.Generator().manual_seed(0) if temperature else None}
    rules = NextTokenRules(bad_words_ids=tuple((7, token) for token in range(13)), forced_bos_token_id=7)
    with pytest.raises(
        ValueError, match="the rules of generation must leave a token; got a text that may go on with"
    ):
        list(generate(model, PROMPT, 3, rules=rules, **told))
    written = torch.cat(list(generate(model, PROMPT, 3, rules=rules, end_tokens=[7], **told)), 1)
    assert written[1].tolist() == [7, 7, 7]
