import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordinate.study.statistics import (
    Draws,
    bits,
    bits_per_byte_interval,
    interval,
    overlap,
    ratio,
    resampled,
    share_interval,
)


def rows(nats, size):
    return [{"nats": float(n), "bytes": int(b)} for n, b in zip(nats, size, strict=True)]


def test_bits_per_byte_is_all_surprise_over_all_bytes():
    nats = np.array([[np.log(2), 3 * np.log(2)], [3 * np.log(2), 5 * np.log(2)]])
    assert ratio(bits(nats), np.array([2.0, 4.0])) == pytest.approx((2 + 4) / 6)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    random, hits = np.random.default_rng(0), 0
    for trial in range(200):
        size = random.integers(500, 1500, 40)
        bits = random.normal(2.0, 0.4, 40)
        low, high = bits_per_byte_interval(rows(bits * size * np.log(2), size))
        hits += low <= 2.0 <= high
        assert low < high, trial
    # 95 % of 200 is 190; percentile intervals of 40 documents run a little short
    assert 178 <= hits <= 198


def test_a_paired_difference_is_surer_than_two_intervals():
    random = np.random.default_rng(1)
    size, hard = np.full(30, 1000.0), random.normal(2, 0.5, 30)
    one = (hard + random.normal(0, 0.02, 30))[None] * size * np.log(2)
    other = (hard + 0.1 + random.normal(0, 0.02, 30))[None] * size * np.log(2)
    draws = Draws.of(30, 1)
    one, other = bits(one), bits(other)
    a, b = resampled(one, size, draws), resampled(other, size, draws)
    assert overlap(interval(a, 30), interval(b, 30))
    low, high = interval(b - a, 30)
    assert 0 < low < 0.1 < high
    apart = resampled(other, size, Draws.of(30, 1, seed=5)) - a
    assert np.ptp(interval(apart, 30)) > 5 * (high - low)


def test_seeds_widen_the_interval_when_training_is_a_matter_of_luck():
    size = np.full(50, 1000.0)
    steady = np.full((3, 50), 2000.0)
    lucky = steady + np.array([[-300.0], [0.0], [300.0]])
    draws = Draws.of(50, 3)
    assert np.ptp(interval(resampled(bits(steady), size, draws), 50)) == pytest.approx(0)
    assert np.ptp(interval(resampled(bits(lucky), size, draws), 50)) > 0.3


def test_one_document_cannot_tell():
    assert bits_per_byte_interval(rows([10.0], [5])) is None


def test_the_same_numbers_give_the_same_interval():
    table = rows([10.0, 20.0, 12.0], [5, 6, 7])
    assert bits_per_byte_interval(table) == bits_per_byte_interval(table)


@given(st.tuples(*[st.floats(-5, 5)] * 4))
def test_overlap_is_sharing_a_point(numbers):
    one, other = tuple(sorted(numbers[:2])), tuple(sorted(numbers[2:]))
    shared = max(one[0], other[0]) <= min(one[1], other[1])
    assert overlap(one, other) == overlap(other, one) == shared


def test_a_share_of_single_questions_has_wilsons_interval():
    right = np.array([1.0] * 90 + [0.0] * 10)
    # from the formula, by hand: p = 0.9, n = 99, the variance being that of a sample
    p, n, z = 0.9, 99, 1.959964
    middle, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = share_interval(right, np.ones(100))
    assert low == pytest.approx((middle - half) / (1 + z**2 / n), abs=1e-6)
    assert high == pytest.approx((middle + half) / (1 + z**2 / n), abs=1e-6)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_right_or_none_leaves_something_open(share):
    low, high = share_interval(np.full(100, 4 * share), np.full(100, 4.0))
    assert low <= share <= high
    # as if the questions of a sequence were one
    assert high - low == pytest.approx(0.037, abs=0.002)


def test_the_interval_of_a_share_covers_the_truth_when_sequences_differ():
    random, hits = np.random.default_rng(2), 0
    for _ in range(300):
        chances = random.beta(8, 2, 60)
        low, high = share_interval(random.binomial(10, chances).astype(float), np.full(60, 10.0))
        hits += low <= 0.8 <= high
    assert 0.92 * 300 <= hits <= 0.98 * 300


def test_questions_that_go_together_count_as_one():
    apart = np.random.default_rng(0).binomial(1, 0.7, 400).reshape(100, 4)
    together = np.repeat(apart[:, :1], 4, 1)
    asked = np.full(100, 4.0)
    narrow, wide = (share_interval(rows.sum(1).astype(float), asked) for rows in (apart, together))
    assert np.ptp(wide) > 1.7 * np.ptp(narrow)
