import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordinate.study.statistics import (
    BootstrapWeights,
    accuracy_interval,
    bits_per_byte_interval,
    bootstrap_ratios,
    nats_to_bits,
    overlap,
    percentile_interval,
    pooled_ratio,
)


def rows(nats, size):
    return [{"nats": float(n), "bytes": int(b)} for n, b in zip(nats, size, strict=True)]


def test_bits_per_byte_is_total_loss_over_total_bytes():
    nats = np.array([[np.log(2), 3 * np.log(2)], [3 * np.log(2), 5 * np.log(2)]])
    assert pooled_ratio(nats_to_bits(nats), np.array([2.0, 4.0])) == pytest.approx((2 + 4) / 6)


def test_the_bootstrap_interval_has_its_nominal_coverage():
    random, hits = np.random.default_rng(0), 0
    for trial in range(200):
        size = random.integers(500, 1500, 40)
        bits = random.normal(2.0, 0.4, 40)
        low, high = bits_per_byte_interval(rows(bits * size * np.log(2), size))
        hits += low <= 2.0 <= high
        assert low < high, trial
    # 95 % of 200 is 190; percentile intervals of 40 documents run a little short
    assert 178 <= hits <= 198


def test_a_paired_difference_has_a_narrower_interval():
    random = np.random.default_rng(1)
    size, hard = np.full(30, 1000.0), random.normal(2, 0.5, 30)
    one = (hard + random.normal(0, 0.02, 30))[None] * size * np.log(2)
    other = (hard + 0.1 + random.normal(0, 0.02, 30))[None] * size * np.log(2)
    draws = BootstrapWeights.of(30, 1)
    one, other = nats_to_bits(one), nats_to_bits(other)
    a, b = bootstrap_ratios(one, size, draws), bootstrap_ratios(other, size, draws)
    assert overlap(percentile_interval(a, 30), percentile_interval(b, 30))
    low, high = percentile_interval(b - a, 30)
    assert 0 < low < 0.1 < high
    apart = bootstrap_ratios(other, size, BootstrapWeights.of(30, 1, seed=5)) - a
    assert np.ptp(percentile_interval(apart, 30)) > 5 * (high - low)


def test_variance_between_seeds_widens_the_interval():
    size = np.full(50, 1000.0)
    steady = np.full((3, 50), 2000.0)
    lucky = steady + np.array([[-300.0], [0.0], [300.0]])
    draws = BootstrapWeights.of(50, 3)
    assert np.ptp(percentile_interval(bootstrap_ratios(nats_to_bits(steady), size, draws), 50)) == pytest.approx(0)
    assert np.ptp(percentile_interval(bootstrap_ratios(nats_to_bits(lucky), size, draws), 50)) > 0.3


def test_one_document_gives_no_interval():
    assert bits_per_byte_interval(rows([10.0], [5])) is None


def test_the_same_numbers_give_the_same_interval():
    table = rows([10.0, 20.0, 12.0], [5, 6, 7])
    assert bits_per_byte_interval(table) == bits_per_byte_interval(table)


@given(st.tuples(*[st.floats(-5, 5)] * 4))
def test_intervals_overlap_if_they_share_a_point(numbers):
    one, other = tuple(sorted(numbers[:2])), tuple(sorted(numbers[2:]))
    shared = max(one[0], other[0]) <= min(one[1], other[1])
    assert overlap(one, other) == overlap(other, one) == shared


def test_an_accuracy_of_single_questions_has_wilsons_interval():
    right = np.array([1.0] * 90 + [0.0] * 10)
    # computed by hand: p = 0.9, n = 99, with the sample variance
    p, n, z = 0.9, 99, 1.959964
    middle, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = accuracy_interval(right, np.ones(100))
    assert low == pytest.approx((middle - half) / (1 + z**2 / n), abs=1e-6)
    assert high == pytest.approx((middle + half) / (1 + z**2 / n), abs=1e-6)


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
