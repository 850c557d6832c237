import pytest
import torch

from ordinate.probing._adapter import Inputs
from ordinate.probing._probe import ProbeData
from ordinate.replications.papers.ke import (
    ALL,
    CROSS,
    POSITIONS,
    WORDS,
    FirstLayer,
    Ke,
    WithoutTerms,
    changes,
    loss,
    split_scores,
    sum_errors,
)
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Subject
from ordinate.replications.runner import replicate

IDS = random_texts(0, 8, 32)


def test_the_scores_are_the_sum_of_the_four_terms_and_not_of_two():
    whole, part = sum_errors(random_decoder(0, "learned"), IDS)
    assert whole < 1e-5
    assert part > 0.1


def test_terms_are_taken_out_of_the_first_layer_alone():
    model = random_decoder(0, "learned")
    watch = WithoutTerms(split_scores(model, IDS), ALL)
    model.forward(Inputs(ids=IDS), watch)
    assert watch.remaining < 1e-5
    assert watch.attention_scores(1, torch.ones(1, 1, 2, 2)) is None


def test_the_terms_between_words_and_positions_vanish_without_words_that_differ():
    model = random_decoder(0, "learned")
    ids = torch.full((8, 32), 5)
    split = split_scores(model, ids)
    # one word: all that differs is the position, and what the two parts share is with the words
    positions, cross, words = (changes(model, ids, WithoutTerms(split, terms)) for terms in (POSITIONS, CROSS, WORDS))
    assert positions.min() > 1e-4
    assert torch.allclose(positions, positions[:1].expand(8))
    assert len(cross) == len(words) == 8


def planted_means(words):
    """Queries and keys of a mean, a part by position and one by word, and their means over texts."""
    generator = torch.Generator().manual_seed(0)
    middle, places = torch.randn(2, 1, 1, 1, 4, generator=generator), torch.randn(2, 1, 1, 6, 4, generator=generator)
    each = words * torch.randn(2, 8, 1, 6, 4, generator=generator)
    q, k = (middle + places + each - each.mean(1, keepdim=True)).double()
    means = FirstLayer(random_decoder(0).info)
    means.qkv(0, q, k, k)
    return means, q, k


def test_scores_by_position_alone_are_no_terms_between_words_and_positions():
    means, q, k = planted_means(words=0.0)
    products = [a @ b.mT for a, b in means.factors(0, q, k)]
    assert torch.allclose(products[3].expand(8, -1, -1, -1), q @ k.mT)
    assert all(one.abs().max() < 1e-5 for one in products[:3])


def test_the_four_terms_sum_to_the_scores_and_average_to_nothing_but_positions():
    means, q, k = planted_means(words=1.0)
    products = [a @ b.mT for a, b in means.factors(0, q, k)]
    assert torch.allclose(sum(products), q @ k.mT)
    # over texts, a term with one word in it has no mean
    assert all(products[term].mean(0).abs().max() < 1e-5 for term in CROSS)


def test_no_term_taken_out_changes_nothing():
    model = random_decoder(0, "learned")
    nothing = WithoutTerms(split_scores(model, IDS), ())
    assert changes(model, IDS, nothing).max() < 1e-5
    assert loss(model, IDS, nothing) == pytest.approx(loss(model, IDS), abs=1e-6)


def test_a_model_without_added_positions_has_no_claim():
    texts = ProbeData(IDS, None, "random", natural=False)
    model = {claim.name for claim in Ke.claims if claim.needs == "model"}
    assert model <= set(Ke().measure(Subject(random_decoder(0, "learned"), texts)))
    assert not model & set(Ke().measure(Subject(random_decoder(0, "rope"), texts)))


def test_committed_numbers_give_verdicts(trained_folder):
    result = replicate("ke", trained=trained_folder)
    assert all(control.recovered for control in result.controls)
    assert "6 models" in result.trained
