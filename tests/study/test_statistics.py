import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordinate.study.statistics import Draws, bits_per_byte, bits_per_byte_interval, interval, overlap, resampled


def rows(nats, size):
    return [{"nats": float(n), "bytes": int(b)} for n, b in zip(nats, size, strict=True)]


def test_bits_per_byte_is_all_surprise_over_all_bytes():
    nats = np.array([[np.log(2), 3 * np.log(2)], [3 * np.log(2), 5 * np.log(2)]])
    assert bits_per_byte(nats, np.array([2.0, 4.0])) == pytest.approx((2 + 4) / 6)


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
    assert np.ptp(interval(resampled(steady, size, draws), 50)) == pytest.approx(0)
    assert np.ptp(interval(resampled(lucky, size, draws), 50)) > 0.3


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
