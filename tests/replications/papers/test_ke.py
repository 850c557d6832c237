import torch

from ordinate.replications.papers.ke import (
    ALL,
    CROSS,
    POSITIONS,
    WORDS,
    Ke,
    WithoutTerms,
    changes,
    same_at_each_place,
    split_scores,
    sum_errors,
)
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.runner import replicate


def test_the_scores_are_the_sum_of_the_four_terms_and_not_of_fewer():
    model, ids = random_decoder(0, "learned"), random_texts(0, 8, 16)
    whole, part = sum_errors(model, ids)
    assert whole < 1e-5
    assert part > 0.1


def test_terms_taken_out_change_the_output_and_none_does_not():
    model, ids = random_decoder(0, "learned"), random_texts(0, 8, 16)
    split = split_scores(model, ids)
    found = {terms: changes(model, ids, WithoutTerms(split, terms)) for terms in ((), CROSS, POSITIONS, WORDS, ALL)}
    assert found[()].max() < 1e-6
    assert all(found[terms].min() > 1e-3 for terms in (CROSS, POSITIONS, WORDS))
    assert found[ALL].mean() > found[POSITIONS].mean()


def test_where_no_place_differs_a_model_without_positions_has_no_term_between_positions():
    model, ids = random_decoder(0), same_at_each_place(random_texts(0, 8, 16))
    assert torch.equal(ids[0].sort().values, ids[5].sort().values)
    assert changes(model, ids, WithoutTerms(split_scores(model, ids), POSITIONS)).max() < 1e-6


def test_committed_numbers_give_verdicts(trained_folder):
    result = replicate("ke", trained=trained_folder)
    assert [one.claim.name for one in result.claims] == [claim.name for claim in Ke.claims if claim.needs != "model"]
    assert all(control.recovered for control in result.controls)
