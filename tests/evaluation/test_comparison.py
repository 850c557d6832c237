import math

import numpy as np
import pytest
from scipy import stats

from ordinate.evaluation.comparison import Measurements, compare, holm


def table(amounts, seeds=None):
    amounts = np.atleast_2d(np.asarray(amounts, float))
    return Measurements(tuple(seeds or range(len(amounts))), amounts, np.full(amounts.shape[1], 100.0))


def test_holms_correction_by_hand():
    # sorted: .01 x 4, .02 x 3, .03 x 2, .9 x 1, each at least as large as the one before
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([]) == []
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def draw(random, models, seeds, documents, *, apart=0.0):
    """Simulated measurements of equal models (except the first): effects of seed and document, and noise."""
    hard = random.normal(200, 50, documents)
    return {
        str(model): table(
            hard
            + apart * (model == 0)
            + random.normal(0, 3, (seeds, 1))
            + random.normal(0, 3, documents)
            + random.normal(0, 1, (seeds, documents))
        )
        for model in range(models)
    }


def best_is_sure(tables):
    found = compare(tables)
    best = min(tables, key=lambda name: tables[name].amounts.sum())
    return all(found[best, other].significant for other in tables if other != best)


@pytest.mark.extended
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_no_winner_is_found_among_equals_more_often_than_once_in_twenty(seeds):
    random = np.random.default_rng(seeds)
    found = sum(best_is_sure(draw(random, 4, seeds, 20)) for _ in range(200))
    assert found <= 200 * 0.05 + 2 * math.sqrt(200 * 0.05 * 0.95)


@pytest.mark.extended
def test_a_significant_difference_among_equals_is_as_rare():
    random = np.random.default_rng(0)
    wrong = sum(any(pair.significant for pair in compare(draw(random, 4, 3, 20)).values()) for _ in range(200))
    assert wrong <= 200 * 0.05 + 2 * math.sqrt(200 * 0.05 * 0.95)


def test_ignoring_the_variance_between_seeds_would_name_winners_among_equals():
    # mutant: the variance between seeds is left out
    random, wrong = np.random.default_rng(0), 0
    for _ in range(100):
        tables = draw(random, 2, 3, 20)
        alike = {
            name: Measurements((0,), one.amounts.mean(0, keepdims=True), one.sizes) for name, one in tables.items()
        }
        wrong += best_is_sure(alike)
    assert wrong > 15


def test_a_planted_difference_is_found_and_has_its_sign_and_size():
    random = np.random.default_rng(1)
    found = compare(draw(random, 3, 5, 40, apart=-30))
    one, back = found["0", "1"], found["1", "0"]
    assert one.significant
    assert one.difference == pytest.approx(-0.3, abs=0.06)
    assert one.interval[0] < -0.3 < one.interval[1] or abs(one.difference + 0.3) < 0.06
    assert back.difference == -one.difference
    assert back.interval == (-one.interval[1], -one.interval[0])
    assert not found["1", "2"].significant
    assert one.effect < -4


def test_seeds_needed_would_have_been_enough():
    # the difference is two standard deviations between seeds; there are enough documents to add no variance
    luck = np.array([-1.0, 0.0, 1.0])[:, None]
    one, other = 200 + np.zeros((3, 3000)), 202 + luck + np.zeros((3, 3000))
    pair = compare({"a": table(one), "b": table(other)})["a", "b"]
    assert not pair.significant
    assert pair.effect == pytest.approx(-2)
    assert pair.seeds_needed == 4
    # t = 2 sqrt(4) with 3 degrees of freedom, and with 3 seeds 2 sqrt(3) with 2
    assert 2 * stats.t.sf(4, 3) < 0.05 < 2 * stats.t.sf(2 * math.sqrt(3), 2)


@pytest.mark.extended
def test_a_model_with_a_larger_variance_between_seeds_is_tested_with_its_own():
    random, wrong = np.random.default_rng(3), 0
    for _ in range(150):
        tables = draw(random, 5, 3, 20)
        tables["wild"] = table(tables["0"].amounts + random.normal(0, 30, (3, 1)))
        wrong += any(pair.significant for names, pair in compare(tables).items() if "wild" in names)
    assert wrong <= 150 * 0.05 + 2 * math.sqrt(150 * 0.05 * 0.95)


def test_where_documents_dominate_the_variance_more_seeds_do_not_help():
    random = np.random.default_rng(2)
    noise, luck = random.normal(0, 40, 12), np.array([[0], [0.1], [-0.1]])
    pair = compare({"a": table(np.tile(200 + noise, (3, 1)) + luck), "b": table(np.full((3, 12), 201))})
    assert pair["a", "b"].seeds_needed is None


@pytest.mark.parametrize(("answers", "chance"), [(3, 0.25), (5, 0.0625), (8, 0.0078)])
def test_a_few_answers_that_all_differ_in_one_direction_are_hardly_more_significant_than_in_mcnemars_test(
    answers, chance
):
    one, other = np.ones(300), np.ones(300)
    other[:answers] = 0
    pair = compare({"a": Measurements((0,), one[None], one), "b": Measurements((0,), other[None], one)})["a", "b"]
    # McNemar's exact test: this number of coin tosses, all heads or all tails
    assert chance / 1.5 < pair.p < chance * 4


def test_only_shared_seeds_are_compared():
    one = table([[1, 2], [50, 60]], seeds=[0, 2])
    other = table([[2, 4], [7, 8]], seeds=[0, 1])
    assert compare({"a": one, "b": other})["a", "b"].difference == pytest.approx((3 - 6) / 200)
    assert compare({"a": one, "b": table([[1, 1]], seeds=[5])}) == {}


def test_one_document_and_one_seed_allow_no_test():
    pair = compare({"a": table([[1.0]]), "b": table([[2.0]])})["a", "b"]
    assert (pair.p, pair.adjusted, pair.interval, pair.effect, pair.seeds_needed) == (1, 1, None, None, None)


def test_identical_measurements_do_not_differ():
    pair = compare({"a": table([[1, 2], [3, 4]]), "b": table([[1, 2], [3, 4]])})["a", "b"]
    assert (pair.difference, pair.adjusted, pair.significant) == (0, 1, False)


def test_others_in_the_study_change_the_number_of_comparisons_only():
    random = np.random.default_rng(4)
    quiet = draw(random, 3, 3, 20, apart=-3)
    loud = {f"loud {index}": table(random.normal(500, 400, (3, 20))) for index in range(4)}
    alone, beside = compare(quiet), compare(quiet | loud)
    for names in alone:
        one, other = alone[names], beside[names]
        assert (one.difference, one.interval, one.p, one.effect) == (
            other.difference,
            other.interval,
            other.p,
            other.effect,
        )
    assert beside["0", "1"].adjusted >= alone["0", "1"].adjusted


def test_many_seeds_of_one_document_give_no_interval_and_no_winner():
    random = np.random.default_rng(5)
    found = compare({name: table(random.normal(level, 1, (30, 1))) for name, level in (("a", 1), ("b", 50))})
    pair = found["a", "b"]
    assert (pair.interval, pair.p, pair.significant) == (None, 1, False)
