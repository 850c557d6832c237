import numpy as np
import pytest

from ordinate.core.finding import Estimate
from ordinate.probing.measures.grading import Evidence, corrected_level, decide, mean_evidence


def evidence(low, value, high, null=0.0, size=0.1):
    estimate = Estimate(name=f"{value}", value=value, low=low, high=high, null=null)
    return Evidence(estimate, estimate, size)


CLEAR, SLIGHT, ABSENT, OPEN, NARROW = (
    evidence(0.2, 0.3, 0.4),
    evidence(0.01, 0.02, 0.03),
    evidence(-0.01, 0.001, 0.02),
    evidence(-0.5, 0.05, 0.6),
    evidence(0.4, 0.5, 0.6, null=0.3),
)


@pytest.mark.parametrize(
    ("given", "grade", "decisive"),
    [
        ((ABSENT, CLEAR, SLIGHT), "yes", CLEAR),
        ((ABSENT, SLIGHT, OPEN), "weakly", SLIGHT),
        ((ABSENT, OPEN), "cannot be told", OPEN),
        ((ABSENT, evidence(-0.01, 0.0, 0.02)), "no", ABSENT),
        # in units of what matters: 2 against 1.4
        ((NARROW, evidence(0.6, 0.7, 0.8, size=0.5)), "yes", NARROW),
    ],
)
def test_any_of_several_measures_may_show_the_effect_and_the_strongest_is_named(given, grade, decisive):
    found, effect = decide(given)
    assert found == grade
    assert effect == decisive.estimate


def test_the_size_that_matters_is_above_the_null():
    assert evidence(0.15, 0.19, 0.25, null=0.1).grade == "weakly"
    assert evidence(0.15, 0.21, 0.25, null=0.1).grade == "yes"


def test_an_interval_is_widened_for_the_number_of_tests():
    values = np.random.default_rng(0).normal(0.12, 1.0, 400)
    alone, many = (mean_evidence("", values, 0, "", null=0.0, tests=tests, size=0.1) for tests in (1, 20))
    assert alone.estimate == many.estimate
    assert many.corrected.low < alone.corrected.low == alone.estimate.low
    assert corrected_level(20) == pytest.approx(0.9975)
