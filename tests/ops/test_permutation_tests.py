import numpy as np
import pytest

from ordinate.ops.stats.permutation_tests import mantel_test, ranks, sign_flip_test


def distances(points):
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))


def test_without_effect_one_in_twenty_is_called_one():
    random = np.random.default_rng(0)
    p, _ = sign_flip_test(random.standard_t(4, (20, 4000)), seed=1)
    assert 0.04 <= (p <= 0.05).mean() <= 0.06
    assert abs(p.mean() - 0.5) < 0.02


def test_a_planted_effect_is_found():
    random = np.random.default_rng(0)
    p, drawn = sign_flip_test(random.normal(1.5, 1, (20, 200)), seed=1)
    assert (p <= 0.05).mean() > 0.99
    assert drawn.shape == (999, 200)


def test_no_difference_at_all_is_no_effect():
    assert sign_flip_test(np.zeros(9), 0)[0] == 1.0


@pytest.mark.extended
def test_distances_of_unrelated_points_are_called_related_one_time_in_twenty():
    random = np.random.default_rng(0)
    tests = [
        mantel_test(*(distances(random.normal(size=(16, 3))) for _ in range(2)), seed=turn, permutations=199)
        for turn in range(400)
    ]
    assert 0.03 <= np.mean([test.p <= 0.05 for test in tests]) <= 0.075


def test_distances_of_the_same_points_are_related():
    random = np.random.default_rng(0)
    points = random.normal(size=(24, 3))
    found = mantel_test(distances(points), distances(points + 0.3 * random.normal(size=points.shape)), seed=0)
    assert found.p == 0.001
    assert found.value > 0.8 > found.high
    same = mantel_test(distances(points), 2 * distances(points), seed=0)
    assert abs(same.value - 1) < 1e-12


def test_equal_values_share_their_rank():
    assert ranks(np.array([5.0, 1.0, 5.0, 0.0])).tolist() == [2.5, 1.0, 2.5, 0.0]
