import math

import numpy as np
import pytest
from scipy import stats

from ordinate.evaluation import statistics
from ordinate.evaluation.statistics import (
    RatioEstimate,
    accuracy_interval,
    estimate_change,
    estimate_difference,
    estimate_ratio,
    nats_to_bits,
    pooled_ratio,
)


def interval(nats, size):
    return estimate_ratio(nats_to_bits(np.array([nats])), np.array(size, float)).interval


def test_bits_per_byte_is_total_loss_over_total_bytes():
    nats = np.array([[np.log(2), 3 * np.log(2)], [3 * np.log(2), 5 * np.log(2)]])
    assert pooled_ratio(nats_to_bits(nats), np.array([2.0, 4.0])) == pytest.approx((2 + 4) / 6)


@pytest.mark.parametrize(
    ("t", "df", "chance"),
    # from printed tables of the t distribution
    [(12.706, 1, 0.05), (2.776, 4, 0.05), (2.228, 10, 0.05), (3.169, 10, 0.01), (1.96, 1e6, 0.05)],
)
@pytest.mark.parametrize("seeds", [False, True])
def test_with_one_component_the_p_value_is_that_of_the_t_test(t, df, chance, seeds):
    parts = (
        {"seed_variance": 1.0, "document_variance": 0.0}
        if seeds
        else {
            "seed_variance": 0.0,
            "document_variance": 1.0,
        }
    )
    found = RatioEstimate(t, 2, 9, **parts, seed_df=df, document_df=df)
    assert found.p == pytest.approx(chance, abs=2e-4)
    assert found.p == pytest.approx(2 * stats.t.sf(t, df), rel=1e-6)


@pytest.mark.parametrize("value", [0.01, 0.5, 3.0, 3.7, 40.0])
def test_p_value_and_interval_never_disagree(value):
    found = RatioEstimate(value, 3, 20, seed_variance=0.5, document_variance=0.8, seed_df=2, document_df=7.3)
    assert (found.p < 0.05) == (found.interval[0] > 0)
    assert found.half_width(found.p) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(("documents", "variance"), [(-0.1, 0.9), (-0.25, 0.75), (-3.0, 0.75), (0.4, 1.4)])
def test_a_negative_variance_between_documents_reduces_that_between_seeds_by_a_quarter_at_most(documents, variance):
    found = RatioEstimate(2.0, 5, 20, seed_variance=1.0, document_variance=documents, seed_df=4, document_df=4)
    assert found.variance == pytest.approx(variance)
    assert found.half_width() == pytest.approx(stats.t.isf(0.025, 4) * math.sqrt(variance))


def test_with_one_seed_and_equal_documents_it_is_the_t_interval():
    values = np.random.default_rng(0).normal(2, 1, 12)
    low, high = estimate_ratio(values[None], np.ones(12)).interval
    exact = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((exact.low, exact.high))


def test_a_component_between_seeds_alone_gives_the_t_interval_over_seeds():
    luck = np.array([-1.0, 0.5, 2.0, 0.1])
    found = estimate_ratio(np.tile(luck[:, None], (1, 30)), np.ones(30))
    exact = stats.ttest_1samp(luck, 0).confidence_interval(0.95)
    assert found.interval == pytest.approx((exact.low, exact.high))
    assert found.document_variance == pytest.approx(0)


def gaps(random, seeds, documents, sizes, parts, tail):
    """Differences without effect: of seeds, of documents and of both [per unit of size]."""

    def noise(*shape):
        return random.standard_t(3, shape) / math.sqrt(3) if tail else random.normal(size=shape)

    u, v, e = parts
    return (u * noise(seeds, 1) + v * noise(1, documents) + e * noise(seeds, documents)) * sizes


def covered(seeds, documents, spread, parts, tail=False, draws=1000, **changed):
    """Share of intervals that cover 0, in simulations without a difference."""
    random, hits = np.random.default_rng(0), 0
    for _ in range(draws):
        sizes = np.exp(random.normal(0, spread, documents))
        found = estimate_difference(gaps(random, seeds, documents, sizes, parts, tail), np.zeros(1), sizes)
        found = RatioEstimate(**{**vars(found), **changed})
        hits += found.interval[0] <= 0 <= found.interval[1]
    return hits / draws


@pytest.mark.covering(1)
@pytest.mark.parametrize("seeds", [1, 2, 3, 10])
@pytest.mark.parametrize("documents", [2, 5, 40])
@pytest.mark.parametrize("spread", [0.0, 1.2])
@pytest.mark.parametrize("parts", [(0, 1, 0), (0, 0, 1), (1, 4, 4), (10, 1, 1)])
@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.where(lambda seeds, parts: seeds > 1 or not parts[0])
def test_intervals_cover_as_often_as_they_say(seeds, documents, spread, parts, tail):
    draws = 400
    # 93 percent, less two standard errors of the simulation
    assert covered(seeds, documents, spread, parts, tail, draws) > 0.93 - 2 * math.sqrt(0.93 * 0.07 / draws)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("mutant", "parts", "spread"),
    [
        # the variance between seeds left out; few seeds taken for many; long documents taken for many
        ({"seed_variance": 0.0}, (1, 1, 1), 0.0),
        ({"seed_df": 1e9}, (1, 0, 0.1), 0.0),
        ({"document_df": 1e9}, (0, 1, 0), 2.0),
    ],
)
def test_mutants_cover_less(mutant, parts, spread):
    assert covered(2, 5, spread, parts, **mutant) < 0.9


@pytest.mark.extended
@pytest.mark.parametrize(("largest", "right"), [(0.25, True), (0.0, False), (1.0, False)])
def test_intervals_are_not_too_wide_either(largest, right, monkeypatch):
    # the sum of the variances is the hardest to estimate where all of it is due to seeds x documents
    monkeypatch.setattr(statistics, "LARGEST_EXCESS", largest)
    assert (0.94 < covered(10, 20, 1.0, (0, 0, 1), draws=4000) < 0.97) == right


def test_few_questions_that_differ_are_few_degrees_of_freedom():
    one, other = np.ones((1, 300)), np.ones((1, 300))
    other[0, :3] = 0
    assert estimate_difference(one, other, np.ones(300)).document_df == 2


@pytest.mark.parametrize("questions", [2, 5, 12])
def test_documents_that_all_differ_by_the_same_amount_have_the_p_value_of_the_sign_test(questions):
    ones = np.ones((1, questions))
    found = estimate_difference(ones, 0 * ones, ones[0])
    assert found.p == pytest.approx(2.0 ** (1 - questions), rel=1e-6)
    assert (found.interval[0] > 0) == (questions > 5)


def test_the_change_of_a_ratio_is_paired_by_document():
    random = np.random.default_rng(1)
    sizes = np.full(30, 1000.0)
    hard = random.normal(2, 0.5, 30)
    near, far = (hard * sizes)[None], ((hard + 0.1 + random.normal(0, 0.02, 30)) * 2 * sizes)[None]
    found = estimate_change((near, sizes), (far, 2 * sizes))
    assert found.value == pytest.approx(0.1, abs=0.02)
    assert 0 < found.interval[0] < 0.1 < found.interval[1]
    wide = estimate_ratio(far, 2 * sizes).interval
    assert np.ptp(wide) > 5 * np.ptp(found.interval)
    still = estimate_change((near, sizes), (near, sizes))
    assert (still.value, still.interval) == (0, (0, 0))


def test_one_document_gives_no_interval():
    assert interval([10.0], [5]) is None


def test_the_same_numbers_give_the_same_interval():
    table = [10.0, 20.0, 12.0], [5, 6, 7]
    assert interval(*table) == interval(*table)


def test_an_accuracy_of_single_questions_has_wilsons_interval():
    right = np.array([1.0] * 90 + [0.0] * 10)
    # computed by hand: p = 0.9, n = 99, with the sample variance, and the t quantile of 99 degrees of freedom
    p, n, z = 0.9, 99, 1.984217
    middle, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = accuracy_interval(right, np.ones(100))
    assert low == pytest.approx((middle - half) / (1 + z**2 / n), abs=1e-6)
    assert high == pytest.approx((middle + half) / (1 + z**2 / n), abs=1e-6)


def test_the_interval_of_an_accuracy_covers_the_variance_between_seeds():
    steady = np.tile(np.random.default_rng(0).binomial(1, 0.7, 100).astype(float), (3, 1))
    lucky = np.random.default_rng(1).binomial(1, [[0.5], [0.7], [0.9]], (3, 100)).astype(float)
    assert np.ptp(accuracy_interval(lucky, np.ones(100))) > 3 * np.ptp(accuracy_interval(steady, np.ones(100)))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_interval_of_all_or_no_correct_answers_has_positive_width(share):
    low, high = accuracy_interval(np.full(100, 4 * share), np.full(100, 4.0))
    assert low <= share <= high
    # as if each sequence were one question
    assert high - low == pytest.approx(0.037, abs=0.002)


def test_the_interval_of_an_accuracy_has_its_nominal_coverage_with_clustered_questions():
    random, hits = np.random.default_rng(2), 0
    for _ in range(300):
        chances = random.beta(8, 2, 60)
        low, high = accuracy_interval(random.binomial(10, chances).astype(float), np.full(60, 10.0))
        hits += low <= 0.8 <= high
    assert 0.92 * 300 <= hits <= 0.98 * 300


def test_fully_correlated_questions_count_as_one():
    apart = np.random.default_rng(0).binomial(1, 0.7, 400).reshape(100, 4)
    together = np.repeat(apart[:, :1], 4, 1)
    asked = np.full(100, 4.0)
    narrow, wide = (accuracy_interval(rows.sum(1).astype(float), asked) for rows in (apart, together))
    assert np.ptp(wide) > 1.7 * np.ptp(narrow)
