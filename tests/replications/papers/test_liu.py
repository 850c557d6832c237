import pytest

from ordinate.replications.papers.liu import LAYERS, TOKENS, place_weights


def test_the_known_profile_of_six_layers():
    weights = place_weights(causal=True, skip=0.5)
    assert float(weights[: TOKENS // 10].sum()) == pytest.approx(0.56, abs=0.01)
    assert float(weights[-1]) == pytest.approx(2.0**-LAYERS, rel=0.02)
    # the least weight is at the second last place
    assert int(weights.argmin()) == TOKENS - 2


def test_powers_of_the_running_mean_have_their_density():
    assert float(place_weights(True, 0.0, 4)[TOKENS // 2] * TOKENS) == pytest.approx(0.0559, abs=2e-4)
