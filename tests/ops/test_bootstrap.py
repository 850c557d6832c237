import numpy as np
import pytest

from ordinate.ops.stats.bootstrap import (
    mean_interval,
    mean_intervals,
    resampled_means,
    small_sample_level,
    student_quantile,
)


@pytest.mark.parametrize("texts", [2, 3, 4, 7, 8, 16, 64])
def test_the_interval_has_its_nominal_coverage(texts):
    random = np.random.default_rng(texts)
    # one value per trial: drawn from one distribution, evaluated separately
    low, high = mean_intervals(random.normal(3.0, 2.0, (texts, 2000)), seed=1)[1:]
    covered = ((low <= 3.0) & (high >= 3.0)).mean()
    assert 0.93 <= covered <= 0.97


def test_clusters_that_go_together_are_not_taken_for_many():
    random = np.random.default_rng(0)
    texts = random.normal(0, 1, (80, 12, 1)) + np.zeros((1, 1, 12))
    own = [mean_interval(one.mean(-1), 0) for one in texts]
    apart = [mean_interval(one.ravel(), 0) for one in texts]
    assert 0.9 <= np.mean([x.low <= 0 <= x.high for x in own]) <= 0.99
    assert np.mean([x.low <= 0 <= x.high for x in apart]) < 0.5


def test_arms_beside_each_other_are_paired():
    random = np.random.default_rng(0)
    base = random.normal(0, 10, 30)
    means = resampled_means(np.stack([base, base + 1], 1), 0)
    np.testing.assert_allclose(means[:, 1] - means[:, 0], 1.0)


def test_the_same_seed_gives_the_same_interval_and_another_another():
    values = np.arange(10.0)
    assert mean_interval(values, 3) == mean_interval(values, 3)
    assert mean_interval(values, 3) != mean_interval(values, 4)


def test_one_text_has_no_interval_and_none_has_no_mean():
    assert mean_interval(np.ones(1), 0).low is None
    with pytest.raises(ValueError, match="a mean needs at least one text"):
        mean_interval(np.ones(0), 0)


def test_the_level_of_few_texts_is_that_of_student():
    # t of 9 degrees is 2.2622
    from statistics import NormalDist

    want = 1 - 2 * NormalDist().cdf(-((10 / 9) ** 0.5) * 2.262157)
    assert abs(small_sample_level(0.95, 10) - want) < 1e-5


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 15])
def test_the_quantiles_of_student_are_those_of_scipy(degrees):
    stats = pytest.importorskip("scipy.stats")
    exact = stats.t.ppf(0.975, degrees)
    assert abs(student_quantile(0.975, degrees) - exact) <= (1e-9 if degrees < 3 else 0.02) * exact
