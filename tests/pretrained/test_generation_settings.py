"""Settings of generation of published decoders: the tokens and the scores of transformers, and errors by name."""

import json
import random
import runpy
from pathlib import Path

import pytest
import torch

from ordinate import generate
from ordinate.models.next_token_rules import NextTokenRules
from ordinate.models.prompt import Prompt
from ordinate.models.truncation import Truncation
from ordinate.pretrained.generation_settings import GenerationSettings, read_generation_settings, read_rules
from ordinate.pretrained.weights import load

transformers = pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
theirs = FAMILIES["theirs"]
WORDS = 29


def tokens(draw, most):
    return draw.sample(range(WORDS), draw.randint(1, most))


def sequences(draw, most):
    """Sequences of tokens, few tokens, so that they occur."""
    long = {tuple(draw.choices(range(WORDS), k=draw.choice((2, 2, 3)))) for _ in range(draw.randint(0, most))}
    return [[token] for token in tokens(draw, 6)] + [list(sequence) for sequence in sorted(long)]


KINDS = {
    "repetition_penalty": lambda draw: draw.choice((0.6, 1.2, 1.7)),
    "encoder_repetition_penalty": lambda draw: draw.choice((0.6, 1.4)),
    "no_repeat_ngram_size": lambda draw: draw.randint(1, 4),
    "encoder_no_repeat_ngram_size": lambda draw: draw.randint(1, 3),
    "bad_words_ids": lambda draw: sequences(draw, 200),
    "sequence_bias": lambda draw: [[sequence, draw.choice((-2.5, 0.5, 3.0))] for sequence in sequences(draw, 200)],
    "min_length": lambda draw: draw.randint(1, 12),
    "min_new_tokens": lambda draw: draw.randint(1, 9),
    "suppress_tokens": lambda draw: tokens(draw, 12),
    "begin_suppress_tokens": lambda draw: tokens(draw, 12),
    "forced_bos_token_id": lambda draw: draw.randrange(WORDS),
    "forced_eos_token_id": lambda draw: draw.choice((3, [4], tokens(draw, 3))),
    "exponential_decay_length_penalty": lambda draw: [draw.randint(0, 4), draw.choice((1.2, 2.5, 0.9))],
    "renormalize_logits": lambda draw: True,
}


def drawn_settings(seed):
    """A few random settings, with end tokens in most of them."""
    draw = random.Random(seed)
    found = {name: KINDS[name](draw) for name in draw.sample(sorted(KINDS), draw.randint(1, 5))}
    forced = found.get("forced_eos_token_id", [])
    kept = {found.get("forced_bos_token_id"), *(forced if isinstance(forced, list) else [forced])}
    if "suppress_tokens" in found:
        found["suppress_tokens"] = [token for token in found["suppress_tokens"] if token not in kept] or [28]
        kept -= {28} if 28 in kept else set()
    # transformers fails without an end token there
    ends = ([3, 4], [3], list(range(0, 29, 4)), None)[seed % 4]
    ends = ends or ([3] if "exponential_decay_length_penalty" in found else None)
    return found | {"eos_token_id": ends}


def written(model, prompt, settings, rules):
    return torch.cat(list(generate(model, prompt, 12, temperature=0, end_tokens=settings.end_tokens, rules=rules)), 1)


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("gpt2", range(6)),
        ("bloom", range(60, 66)),
        *(
            pytest.param(name, range(start, start + 25), marks=pytest.mark.extended)
            for place, name in enumerate(("llama", "gpt2", "bloom", "mpt", "gpt_neox", "qwen2, windows", "gptj"))
            for start in (100 * place + 100, 100 * place + 125)
        ),
    ],
)
@torch.no_grad()
def test_texts_are_written_with_the_settings_of_the_checkpoint_as_in_transformers(name, seeds, tmp_path):
    other = theirs(name)
    other.save_pretrained(tmp_path)
    model, changed = load(tmp_path), 0
    for seed in seeds:
        (tmp_path / "generation_config.json").write_text(json.dumps(drawn_settings(seed)))
        other.generation_config = transformers.GenerationConfig.from_pretrained(tmp_path)
        settings, draw = read_generation_settings(tmp_path, WORDS), random.Random(seed)
        assert settings.unapplied == ""
        rows = [[draw.randrange(WORDS) for _ in range(length)] for length in (1, 4, 9)]
        expected = []
        for row in rows:
            ids = torch.tensor([row])
            told = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0}
            expected.append(other.generate(ids, max_new_tokens=12, **told)[0, len(row) :].tolist())
            assert written(model, ids, settings, settings.rules)[0].tolist() == expected[-1]
        # each row of a batch has the tokens that it has alone, and repeats its end token
        prompt = Prompt.from_lists(rows)
        together = written(model, prompt, settings, settings.rules)
        assert [row[: len(one)] for row, one in zip(together.tolist(), expected, strict=True)] == expected
        free = written(model, prompt, settings, NextTokenRules())
        changed += together.shape != free.shape or not torch.equal(together, free)
    assert changed > 0.5 * len(seeds)


TEXTS = torch.tensor([[5, 7, 5, 9, 7, 5], [2, 2, 2, 2, 2, 2], [1, 2, 3, 4, 0, 6]])
SOURCE = torch.tensor([[5, 9, 8, 5], [2, 3, 4, 2], [6, 1, 6, 2]])
BIASES = [[[3], 1.5], [[5], -2.0], [[7, 5, 8], 4.0], [[9, 8], 1.0], [[2, 2, 2], -1.0], [[2, 2], 0.5]]
PROCESSORS = {
    "sequence_bias": [(BIASES, transformers.SequenceBiasLogitsProcessor(BIASES))],
    "encoder_repetition_penalty": [
        (penalty, transformers.EncoderRepetitionPenaltyLogitsProcessor(penalty, SOURCE)) for penalty in (0.7, 1.6)
    ],
    "repetition_penalty": [
        (penalty, transformers.RepetitionPenaltyLogitsProcessor(penalty)) for penalty in (0.7, 1.6)
    ],
    "no_repeat_ngram_size": [(size, transformers.NoRepeatNGramLogitsProcessor(size)) for size in (1, 2, 3, 6, 7)],
    "encoder_no_repeat_ngram_size": [
        (size, transformers.EncoderNoRepeatNGramLogitsProcessor(size, SOURCE)) for size in (1, 2, 3, 5)
    ],
    "bad_words_ids": [
        (words, transformers.NoBadWordsLogitsProcessor(words, [3, 4]))
        for words in ([[3], [5]], [[3, 4], [5, 9], [4]], [[7, 5, 6], [2, 2, 2, 2, 2, 2, 2, 2], [4, 0, 6, 3]])
    ],
    "min_length": [(least, transformers.MinLengthLogitsProcessor(least, [3, 4])) for least in (6, 7)],
    "min_new_tokens": [(least, transformers.MinNewTokensLengthLogitsProcessor(4, least, [3, 4])) for least in (2, 3)],
    "exponential_decay_length_penalty": [
        (penalty, transformers.generation.logits_process.ExponentialDecayLengthPenalty(penalty, [3, 4], 4))
        for penalty in ([0, 1.5], [1, 0.5], [2, 1.5])
    ],
    "forced_eos_token_id": [
        (3, transformers.ForcedEOSTokenLogitsProcessor(7, 3)),
        ([4, 5], transformers.ForcedEOSTokenLogitsProcessor(7, [4, 5])),
    ],
    "suppress_tokens": [([0, 8], transformers.SuppressTokensLogitsProcessor([0, 8]))],
    "begin_suppress_tokens": [([0, 8], transformers.SuppressTokensAtBeginLogitsProcessor([0, 8], 4))],
}


@pytest.mark.parametrize(
    ("name", "value", "processor"), [(name, *case) for name, cases in PROCESSORS.items() for case in cases]
)
def test_scores_are_those_of_the_processors_of_transformers(name, value, processor):
    scores = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    scores[0, 6] = scores[1, 3] = -torch.inf
    rules = read_rules({name: value}, (3, 4))
    given = {"source": SOURCE, "prompt": 4, "ends": (3, 4), "last": name == "forced_eos_token_id"}
    assert torch.equal(rules.apply(scores, TEXTS, **given), processor(TEXTS, scores.clone()))


@pytest.mark.parametrize(
    ("new", "forced", "begins"), [(0, None, True), (1, None, False), (1, 4, True), (2, 4, False)]
)
def test_the_first_token_that_is_free_is_that_of_transformers(new, forced, begins):
    told = transformers.GenerationConfig(forced_bos_token_id=forced, begin_suppress_tokens=[5])
    processors = theirs("gpt2")._get_logits_processor(told, 1, torch.tensor([[2]]))
    scores, texts = torch.randn(1, 10), torch.tensor([[2, 3, 6]])[:, : 1 + new]
    rules = read_rules({"forced_bos_token_id": forced, "begin_suppress_tokens": [5]}, ())
    found = rules.apply(scores, texts, prompt=1, source=texts[:, :1], ends=(), last=False)
    assert torch.equal(found, processors(texts, scores))
    assert (found[0, 5] == -torch.inf) == begins


TRUNCATIONS = {
    "top_h": (0.2, 0.6, 0.95),
    "top_k": (1, 3, 40),
    "top_p": (0.05, 0.5, 0.9),
    "min_p": (0.05, 0.4, 1.0),
    "typical_p": (0.05, 0.5, 0.95),
    "epsilon_cutoff": (3e-4, 0.05, 0.9),
    "eta_cutoff": (3e-4, 0.05, 0.9),
}


def truncated(told, temperature, logits):
    """Logits by transformers, in its order."""
    told = transformers.GenerationConfig(do_sample=True, temperature=temperature, **{"top_k": 0} | told)
    processors = theirs("gpt2")._get_logits_processor(told, 1, torch.tensor([[2]]))
    return processors(torch.zeros(len(logits), 1, dtype=torch.long), logits)


@pytest.mark.parametrize("words", [7, 300])
@pytest.mark.parametrize("name", TRUNCATIONS)
def test_the_tokens_that_are_sampled_are_those_of_transformers(name, words):
    logits = 2 * torch.randn(5, words, generator=torch.Generator().manual_seed(1))
    logits[:, 3] = -torch.inf
    for value in TRUNCATIONS[name]:
        expected = truncated({name: value}, 1.0, logits)
        assert torch.equal(Truncation(**{name: value}).apply(logits), expected)
        assert (expected > -torch.inf).any(1).all()


@pytest.mark.parametrize("seed", range(4))
def test_truncations_follow_each_other_as_in_transformers(seed):
    draw = random.Random(seed)
    for _ in range(5):
        told = {name: draw.choice(TRUNCATIONS[name][1:]) for name in draw.sample(sorted(TRUNCATIONS), 4)}
        logits = 2 * torch.randn(5, 50, generator=torch.Generator().manual_seed(draw.randrange(999)))
        assert torch.equal(Truncation(**told).apply(logits / 0.7), truncated(told, 0.7, logits))


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ({"top_k": 0}, "top_k must be above zero; got 0; give 1 or more"),
        ({"top_p": 0.0}, "top_p must be above zero; got 0.0"),
        ({"top_p": 1.5}, r"top_p must lie in \(0, 1\]; got 1.5; give a probability"),
        ({"eta_cutoff": -0.1}, "eta_cutoff must be above zero; got -0.1"),
    ],
)
def test_truncations_without_a_meaning_are_refused(told, match):
    with pytest.raises(ValueError, match=match):
        Truncation(**told)


@pytest.mark.parametrize(
    ("told", "temperature", "truncation"),
    [
        ({}, None, Truncation()),
        ({"do_sample": True}, 1.0, Truncation()),
        ({"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.9}, 0.6, Truncation(top_k=20, top_p=0.9)),
        ({"temperature": 0.6, "min_p": 0.1}, 0.6, Truncation(min_p=0.1)),
        ({"top_k": 5}, None, Truncation(top_k=5)),
        ({"do_sample": False, "temperature": 0.6, "top_k": 20}, 0.0, Truncation()),
        ({"do_sample": True, "temperature": 0.0, "top_p": 0.5}, 0.0, Truncation()),
        # values without an effect
        ({"top_k": 0, "top_p": 1.0, "typical_p": 1.0, "min_p": 0.0, "epsilon_cutoff": 0.0}, None, Truncation()),
    ],
)
def test_settings_of_sampling_are_read(told, temperature, truncation, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = read_generation_settings(tmp_path, WORDS)
    assert (found.temperature, found.truncation, found.file) == (temperature, truncation, "config.json")
    # those of config.json have no effect beside another file
    (tmp_path / "generation_config.json").write_text("{}")
    assert read_generation_settings(tmp_path, WORDS) == GenerationSettings("generation_config.json")


def test_settings_without_an_effect_are_no_rules():
    told = {"renormalize_logits": True, "min_length": 4, "min_new_tokens": 3, "forced_bos_token_id": 2}
    assert read_rules(told | {"exponential_decay_length_penalty": [3, 1.1]}, ()).active == {"forced_bos_token_id": 2}
    assert read_rules(told, (3,)).active == told


def test_settings_that_are_not_applied_are_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    told = {"num_beams": 4, "guidance_scale": 1.5, "stop_strings": [], "diversity_penalty": 0.0, "max_length": 9}
    (tmp_path / "generation_config.json").write_text(json.dumps(told))
    assert read_generation_settings(tmp_path, WORDS).unapplied == "guidance_scale=1.5, num_beams=4"


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("told", "match"),
    [
        ({"repetition_penalty": "1.2"}, "repetition_penalty in {file} must be .*; got '1.2'; correct it, or"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must not be negative; got -1.*{file}"),
        ({"no_repeat_ngram_size": 2.5}, "no_repeat_ngram_size in {file} must be .*; got 2.5"),
        ({"suppress_tokens": [1, 40]}, "tokens of suppress_tokens must lie in 0 to 28; got 40.*{file}"),
        ({"begin_suppress_tokens": 3}, "begin_suppress_tokens in {file} must be .*; got 3"),
        ({"bad_words_ids": [[1], []]}, "bad_words_ids must have one token or more in each sequence.*{file}"),
        ({"bad_words_ids": [3]}, r"bad_words_ids in {file} must be .*; got \[3\]"),
        ({"sequence_bias": [[[29], 1.0]]}, "tokens of sequence_bias must lie in 0 to 28; got 29.*{file}"),
        ({"sequence_bias": [[[2], "much"]]}, r"sequence_bias in {file} must be .*; got \[\[\[2\], 'much'\]\]"),
        ({"sequence_bias": {"2": 1.0}}, "sequence_bias in {file} must be .*; got {{'2': 1.0}}"),
        (
            {"exponential_decay_length_penalty": [2]},
            r"exponential_decay_length_penalty in {file} must be .*; got \[2\]",
        ),
        ({"forced_eos_token_id": "x"}, "forced_eos_token_id in {file} must be .*; got 'x'"),
        ({"top_k": -1}, "top_k must be above zero; got -1.*{file}"),
        ({"top_p": 1.2}, r"top_p must lie in \(0, 1\]; got 1.2.*{file}"),
        ({"temperature": -0.5}, "temperature must not be negative; got -0.5.*{file}"),
        ({"do_sample": 1}, "do_sample in {file} must be .*; got 1"),
    ],
)
def test_settings_that_are_wrong_are_refused_by_name(told, match, file, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / file).write_text(json.dumps({"eos_token_id": 3} | told))
    with pytest.raises(ValueError, match=match.format(file=file)):
        read_generation_settings(tmp_path, WORDS)
