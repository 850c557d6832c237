import numpy as np

from ordinate.ops.stats.multiple_testing import benjamini_hochberg, discoveries


def test_adjusted_p_values_are_those_of_the_paper():
    # the example of Benjamini and Hochberg 1995, section 3.2: four discoveries at 0.05
    p = np.array([0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
                  0.6528, 0.7590, 1.0000])  # fmt: skip
    assert discoveries(p).sum() == 4
    assert discoveries(p[::-1]).tolist() == discoveries(p)[::-1].tolist()
    np.testing.assert_allclose(benjamini_hochberg(p)[:3], [0.0015, 0.003, 0.0095], rtol=1e-9)
    assert (np.diff(benjamini_hochberg(p)) >= 0).all()


def test_of_heads_without_effect_few_sets_have_a_discovery():
    random = np.random.default_rng(0)
    p = random.uniform(size=(4000, 12, 12))
    assert 0.03 <= np.mean([discoveries(one).any() for one in p]) <= 0.07


def test_the_share_of_false_discoveries_is_held_and_planted_heads_are_found():
    random = np.random.default_rng(1)
    shares, found = [], []
    for _ in range(500):
        p = random.uniform(size=144)
        p[:20] = random.uniform(size=20) * 1e-4
        chosen = discoveries(p)
        shares.append(chosen[20:].sum() / max(1, chosen.sum()))
        found.append(chosen[:20].mean())
    assert np.mean(shares) <= 0.055
    assert np.mean(found) > 0.99
