import numpy as np
import pytest
from scipy.stats import kendalltau

from ordinate.evaluation.comparison import Measurements
from ordinate.evaluation.rank_agreement import rank_agreement


def study(values, documents=30, noise=0.0, seed=0):
    """Measurements of one seed: a level for each model, and noise of documents."""
    random = np.random.default_rng(seed)
    hard = random.normal(200, 40, documents)
    return {
        label: Measurements(
            (0,), (hard + 100 * value + random.normal(0, noise, documents))[None], np.full(documents, 100.0)
        )
        for label, value in values.items()
    }


def test_tau_is_scipys_and_sure_pairs_bound_it():
    one, other = {"a": 1, "b": 2, "c": 3, "d": 4}, {"a": 1.5, "b": 1, "c": 4, "d": 3, "e": 0}
    found = rank_agreement(study(one, noise=1), study(other, noise=1, seed=1))
    assert (found.models, found.pairs, found.concordant, found.discordant) == (4, 6, 4, 2)
    assert found.tau == pytest.approx(kendalltau([1, 2, 3, 4], [1.5, 1, 4, 3]).statistic)
    # differences a hundred times the noise are all decided, so nothing is left open
    assert (found.decided, found.decided_other, found.confirmed, found.contradicted) == (6, 6, 4, 2)
    assert found.interval == pytest.approx((found.tau, found.tau))


def test_undecided_pairs_widen_the_interval():
    one, close = {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 1.0001, "c": 3}
    found = rank_agreement(study(one, noise=1), study(close, noise=1, seed=2))
    assert (found.decided, found.decided_other, found.confirmed) == (3, 2, 2)
    assert found.interval == pytest.approx((1 / 3, 1))


def test_a_higher_is_better_metric_reverses_the_order():
    one = study({"a": 1, "b": 2}, noise=1)
    assert rank_agreement(one, one).tau == 1
    assert rank_agreement(one, one, (1, -1)).tau == -1


def test_studies_without_common_models_are_refused():
    with pytest.raises(ValueError, match="rankings need two models in common; got a, b and c"):
        rank_agreement(study({"a": 1, "b": 2}), study({"c": 1}))


def coverage(judge, draws=200):
    """Share of draws whose interval contains the tau of the true levels, which differ by about the noise."""
    hits = 0
    for draw in range(draws):
        random = np.random.default_rng(draw)
        levels = [dict(zip("abcde", random.normal(2, 0.03, 5), strict=True)) for _ in range(2)]
        truth = kendalltau(*(list(level.values()) for level in levels)).statistic
        low, high = judge(*(study(level, noise=8, seed=2 * draw + i) for i, level in enumerate(levels)))
        hits += low - 1e-9 <= truth <= high + 1e-9
    return hits / draws


@pytest.mark.extended
def test_the_interval_covers_the_true_agreement():
    assert coverage(lambda one, other: rank_agreement(one, other).interval) >= 0.95
    # mutant: every pair is taken as decided
    assert coverage(lambda one, other: (rank_agreement(one, other).tau,) * 2) < 0.8
