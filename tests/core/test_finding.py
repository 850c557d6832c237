import pytest

from ordinate.core.finding import Estimate, Finding


@pytest.mark.parametrize(
    ("value", "low", "high", "null_high", "grade"),
    [
        (0.5, 0.4, 0.6, None, "yes"),
        (0.3, 0.2, 0.4, 0.1, "yes"),
        (0.1, 0.05, 0.2, None, "weakly"),
        (0.1, 0.05, 0.2, 0.06, "no"),
        (0.1, -0.1, 0.2, None, "no"),
        (0.1, -0.1, 0.31, None, "cannot be told"),
        (float("nan"), -0.1, 0.2, None, "cannot be told"),
        (0.5, float("nan"), 0.6, None, "cannot be told"),
        (0.5, None, None, None, "yes"),
        (0.0, None, None, None, "no"),
    ],
)
def test_a_grade_is_read_from_the_interval_and_the_null(value, low, high, null_high, grade):
    assert Estimate(name="", value=value, low=low, high=high, null_high=null_high).graded(0.3) == grade


def test_a_headline_begins_with_the_grade_its_effect_and_null():
    effect = Estimate(name="share recovered", value=0.71, low=0.68, high=0.74, null=0.1, unit="of all")
    found = Finding(question="privacy", title="?", grade="cannot be told", effect=effect, answer="What it means.")
    words = "share recovered: 0.71 [0.68, 0.74] of all (without effect: 0.1)"
    assert found.headline == f"Cannot be told. {words[0].upper()}{words[1:]}. What it means."
    between = effect.model_copy(update={"null_low": -0.1, "null_high": 0.2, "unit": ""})
    assert between.described == "share recovered: 0.71 [0.68, 0.74] (without effect: -0.1 to 0.2)"
    assert Finding(question="privacy", title="?", status="skipped", answer="No texts.").headline == "No texts."
    assert list(found.model_dump())[3:6] == ["grade", "effect", "answer"]


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.0004, 0.02, ("0.0004", "0.020")),
        (-0.02, -0.0004, ("-0.020", "-0.0004")),
        (0.004, 1.2, ("0.004", "1.2")),
        # an end that is 0 but for rounding errors
        (3e-17, 0.02, ("0", "0.020")),
        (0.0, 0.02, ("0", "0.02")),
    ],
)
def test_an_end_that_is_not_0_is_not_shown_as_0(low, high, shown):
    assert Estimate(name="share", value=(low + high) / 2, low=low, high=high).formatted[1:] == shown
