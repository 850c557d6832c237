import math

import pytest

from ordinate.core.finding import Estimate
from ordinate.replications.result import Claim, Control, judge

FOUND = Control(name="planted", expected=1.0, got=1.0, tolerance=0.0)
LOST = Control(name="planted", expected=1.0, got=0.0, tolerance=0.5)


def claim(side, size=0.5, expected=None):
    return Claim(name="a", text="b", tested="sign", quantity="c", side=side, size=size, null="d", expected=expected)


def verdict(side, low, high, null=(0.0, 0.0), size=0.5, expected=None, control=FOUND):
    ours = Estimate(name="e", value=(low + high) / 2, low=low, high=high, null=sum(null) / 2, null_low=null[0],
                    null_high=null[1])  # fmt: skip
    return judge(claim(side, size, expected), ours, (control,)).verdict


# the mutants that these kill: low > null_high dropped; >= size dropped; high in place of low; no mirror image
@pytest.mark.parametrize(
    ("low", "high", "null", "expected"),
    [
        (0.6, 0.8, (0.0, 0.0), "agrees"),
        (0.5, 0.8, (0.0, 0.0), "agrees"),
        (0.4, 0.8, (0.0, 0.0), "cannot be told"),
        (0.6, 0.8, (-0.7, 0.7), "cannot be told"),
        (-0.1, 0.4, (0.0, 0.0), "does not"),
        (0.1, 0.4, (0.0, 0.0), "does not"),
        (-0.9, -0.8, (0.0, 0.0), "does not"),
        (-0.1, 0.9, (0.0, 0.0), "cannot be told"),
    ],
)
def test_a_signed_claim_is_judged_by_its_interval_and_the_null(low, high, null, expected):
    assert verdict("above", low, high, null) == expected
    assert verdict("below", -high, -low, (-null[1], -null[0])) == expected


@pytest.mark.parametrize(
    ("low", "high", "null", "expected"),
    [
        (0.9, 1.1, (0.0, 0.0), "agrees"),
        (0.9, 1.6, (0.0, 0.0), "cannot be told"),
        (1.6, 1.8, (0.0, 0.0), "does not"),
        (0.2, 0.4, (0.0, 0.0), "does not"),
        # a null that passes as well makes the test worthless
        (0.9, 1.1, (0.8, 1.2), "cannot be told"),
    ],
)
def test_a_claimed_number_is_judged_by_the_distance_of_its_interval(low, high, null, expected):
    assert verdict("equal", low, high, null, expected=1.0) == expected


def test_without_its_controls_no_claim_has_a_verdict():
    assert verdict("above", 0.6, 0.8, control=LOST) == "cannot be told"
    assert not Control(name="planted", expected=1.0, got=math.nan, tolerance=9.0).recovered


def test_a_number_that_is_not_finite_has_no_verdict():
    ours = Estimate(name="e", value=math.nan, null=0.0)
    assert judge(claim("above"), ours, (FOUND,)).verdict == "cannot be told"


def test_an_exact_estimate_is_its_own_interval():
    assert judge(claim("above"), Estimate(name="e", value=0.5, null=0.0), (FOUND,)).verdict == "agrees"
    assert judge(claim("above"), Estimate(name="e", value=0.4, null=0.0), (FOUND,)).verdict == "does not"
